"""Our own handlers: the same no-op, and one that reports progress twenty times a second."""

import asyncio
import os

from common import Tally

from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handlers

handlers = Handlers()
tally = Tally() if "BENCH_TALLY" in os.environ else None


@handlers.task("noop")
async def noop(sent: int) -> None:
    tally.hit(sent)


@handlers.task("report", timeout=600)
async def report(ctx: Context, rate: float) -> None:
    n = 0
    while True:
        n += 1
        ctx.progress(n % 100, f"step {n}")
        await asyncio.sleep(1 / rate)


@handlers.task("hang", timeout=600)
async def hang() -> None:
    await asyncio.sleep(600)
