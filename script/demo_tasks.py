"""The tasks of the demo: the kinds of background work that an application has."""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import timedelta

from shiftboss import Context
from shiftboss.app import fleet as app

QUESTIONS = ("What happened?", "Why does it matter?", "What comes next?")


@app.task("demo.resize", queue="images")
async def resize(image: int) -> int:
    """Short and async."""
    await asyncio.sleep(random.uniform(0.001, 0.005))
    return image * image


@app.task("demo.render", queue="images")
def render(page: int) -> int:
    """Blocking, so it runs in a thread."""
    time.sleep(0.2)
    return page


@app.task("demo.charge", queue="billing", max_attempts=4, backoff=timedelta(seconds=1))
async def charge(ctx: Context, order: int) -> int:
    """Fails at the first attempt."""
    if ctx.attempt == 1:
        raise ConnectionError("the payment provider does not answer")
    return order


@app.task("demo.broken", queue="images", max_attempts=10)
async def broken() -> None:
    """Kills its worker process, as a segmentation fault in a native library would."""
    os._exit(139)


@app.task("demo.report", queue="reports", max_attempts=5, backoff=timedelta(seconds=1))
async def report(ctx: Context, topic: str) -> list[str]:
    """Three paid answers, each stored as a step: a restarted attempt does not pay for it again."""

    async def ask(question: str) -> str:
        return (await ctx.ai.complete(f"{topic}: {question}", model="writer", max_tokens=60)).text

    return [await ctx.step(question, ask, question) for question in QUESTIONS]
