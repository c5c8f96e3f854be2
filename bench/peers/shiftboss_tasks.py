"""Our own handlers: the same no-op, and one that reports progress twenty times a second."""

import asyncio
import os
import time

from common import PAUSE, Tally

from shiftboss.model.errors import Retry
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handlers

handlers = Handlers()
tally = Tally() if "BENCH_TALLY" in os.environ else None


@handlers.task("noop")
async def noop(sent: int, blob: str = "") -> None:
    if PAUSE:
        await asyncio.sleep(PAUSE)
    if tally is not None:
        tally.hit(sent)


@handlers.task("flaky", max_attempts=3)
async def flaky(ctx: Context) -> None:
    """Fails at its first attempt and is retried immediately."""
    if ctx.attempt == 1:
        raise Retry("once more", after=0)
    tally.hit(0)


@handlers.task("crunch", mode="process")
def crunch(seconds: float) -> None:
    """Keeps a processor busy."""
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        sum(range(100))


@handlers.task("report", timeout=600)
async def report(ctx: Context, rate: float) -> None:
    n = 0
    while True:
        n += 1
        ctx.progress(n % 100, f"step {n}")
        await asyncio.sleep(1 / rate)


@handlers.task("keyed", concurrency_key=lambda key: str(key), max_per_key=1)
async def keyed(key: int) -> None:
    tally.hit(0)


@handlers.task("hang", timeout=600)
async def hang() -> None:
    await asyncio.sleep(600)
