"""The tasks of the chaos runner. Each one writes to the ledger and returns its lease."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any
from weakref import WeakKeyDictionary

from shiftboss import App, Context, GiveUp, SyncContext
from shiftboss.extensions.chaos.ledger import EffectLedger, write
from shiftboss.worker.options import Terms

QUEUE = "chaos"
#: The version of the handlers, which each deployment increments. Every version can continue earlier ones.
VERSION = "SHIFTBOSS_CHAOS_VERSION"
MOST_ATTEMPTS = 200

app = App("chaos")
_version = int(os.environ.get(VERSION, "1"))
_ledgers: WeakKeyDictionary[asyncio.AbstractEventLoop, EffectLedger] = WeakKeyDictionary()
_terms: Terms = {"queue": QUEUE, "max_attempts": MOST_ATTEMPTS}
_durable: Terms = {**_terms, "version": _version, "compatible": [*range(1, _version)]}

Result = dict[str, Any]


async def note(ctx: Context, what: str = "run") -> int:
    """Write to the ledger and return the lease, which handlers and steps return as their result."""
    ledger = _ledgers.setdefault(asyncio.get_running_loop(), EffectLedger())
    await ledger.write(ctx.id, ctx.task.lease, what)
    return ctx.task.lease


def note_blocking(ctx: SyncContext, what: str = "run") -> int:
    write(ctx.id, ctx.task.lease, what)
    return ctx.task.lease


@app.task(**_terms)
async def quick(ctx: Context) -> Result:
    return {"lease": await note(ctx)}


@app.task(**_terms)
async def slow(ctx: Context, seconds: float) -> Result:
    lease = await note(ctx)
    for percent in range(0, 100, 20):
        ctx.progress(percent)
        await asyncio.sleep(seconds / 5)
    return {"lease": lease}


def blocking_steps(ctx: SyncContext, steps: int) -> Result:
    lease = note_blocking(ctx)
    return {"lease": lease, "steps": [ctx.step(f"s{n}", note_blocking, ctx, f"s{n}") for n in range(steps)]}


app.task("chaos.threaded", **_terms)(blocking_steps)
app.task("chaos.forked", mode="process", queue=QUEUE, max_attempts=MOST_ATTEMPTS)(blocking_steps)


@app.task(backoff=0.1, backoff_max=1, queue=QUEUE, max_attempts=MOST_ATTEMPTS)
async def failing(ctx: Context, times: int) -> Result:
    """Fail this many times."""
    lease = await note(ctx)
    if ctx.attempt <= times:
        raise RuntimeError(f"as planned, lease {lease}")
    return {"lease": lease}


@app.task(**_terms)
async def hopeless(ctx: Context) -> Result:
    raise GiveUp(f"as planned, lease {await note(ctx)}")


async def timed(ctx: Context, seconds: float) -> Result:
    lease = await note(ctx)
    await asyncio.sleep(seconds)
    return {"lease": lease}


app.task("chaos.limited", **_terms)(timed)
app.task("chaos.unique", **_terms)(timed)


@app.task(**_durable)
async def stepped(ctx: Context, steps: int) -> Result:
    lease = await note(ctx)
    return {"lease": lease, "steps": [await ctx.step(f"s{n}", note, ctx, f"s{n}") for n in range(steps)]}


@app.task(**_durable)
async def sleeping(ctx: Context, seconds: float) -> Result:
    lease = await note(ctx)
    before = await ctx.step("s0", note, ctx, "s0")
    await ctx.sleep("nap", seconds)
    return {"lease": lease, "steps": [before, await ctx.step("s1", note, ctx, "s1")]}


@app.task(**_durable)
async def waiting(ctx: Context, key: str) -> Result:
    """Wait for two events with one key."""
    lease = await note(ctx)
    events = [await ctx.wait_for(key), await ctx.wait_for(key)]
    return {"lease": lease, "events": events}


@app.task(**_durable)
async def streaming(ctx: Context, parts: int) -> Result:
    """Emit numbers, the first half of them in a step."""
    lease = await note(ctx)
    await ctx.step("s0", _emit, ctx, 0, parts // 2)
    await _emit(ctx, parts // 2, parts)
    return {"lease": lease}


async def _emit(ctx: Context, first: int, end: int) -> int:
    for number in range(first, end):
        await ctx.emit(number)
        await asyncio.sleep(0.005)
    return await note(ctx, "s0") if first == 0 else ctx.task.lease


@app.task(**_durable)
async def nesting(ctx: Context, children: int) -> Result:
    lease = await note(ctx)
    results = await ctx.gather(*(quick.call() for _ in range(children)))
    return {"lease": lease, "children": [result["lease"] for result in results]}


@app.task(**_terms)
async def blocking(ctx: Context, seconds: float) -> Result:
    """Block the event loop of its worker in the first attempt."""
    lease = await note(ctx)
    if ctx.attempt == 1:
        time.sleep(seconds)  # noqa: ASYNC251
    return {"lease": lease}
