"""Tasks that put a secret into everything a task can write; importable by child processes."""

from __future__ import annotations

import logging
from typing import Any

from shiftboss import App, Batch, Context, SyncContext
from shiftboss.model.errors import Defer

app = App("secrets")
log = logging.getLogger("secrets")


@app.task(max_attempts=1)
async def talk(ctx: Context, word: str) -> dict[str, str]:
    ctx.progress(40, f"at {word}")
    log.warning("logged %s", word)
    kept = await ctx.step("remember", lambda: {"step": word})
    await ctx.emit({"part": word})
    heard = await ctx.wait_for("news", dict, timeout=60)
    answer = await ctx.wait_for("opinion", str, timeout=60, question=f"What of {word}?")
    child = await ctx.run(echo.call(word))
    return {**kept, **heard, "answer": answer, "child": child}


@app.task()
async def echo(word: str) -> str:
    return word


@app.task()
async def join(words: list[str], mine: str) -> str:
    return "+".join([*words, mine])


@app.task(max_attempts=1)
async def fail(word: str) -> None:
    raise ValueError(f"no {word}\nat all")


@app.task()
async def wait(word: str) -> None:
    raise Defer(f"waits for {word}", 3600)


@app.task(mode="process", max_attempts=1)
def apart(ctx: SyncContext, word: str) -> str:
    log.warning("logged %s apart", word)
    ctx.emit(word)
    kept: str = ctx.step("keep", lambda: word)
    if word.endswith("!"):
        raise RuntimeError(word)
    return kept


@app.task(batch=Batch(max_size=10, max_wait=0.05))
async def many(items: list[str]) -> list[Any]:
    return [item.upper().lower() for item in items]
