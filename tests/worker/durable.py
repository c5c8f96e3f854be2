"""Handlers with steps, importable by child processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shiftboss import SyncContext


def touch(folder: str, name: str, attempt: int) -> int:
    Path(folder, f"{name}-{attempt}").touch(exist_ok=False)
    return attempt


def count(ctx: SyncContext, folder: str) -> dict[str, Any]:
    one = ctx.step("one", touch, folder, "one", ctx.attempt)
    two = ctx.step("two", lambda: [2 * touch(folder, "two", ctx.attempt)] * 2, timeout=30)
    if ctx.attempt == 1:
        raise RuntimeError("once more")
    return {"one": one, "two": two, "attempt": ctx.attempt}


def spell(ctx: SyncContext, word: str) -> None:
    for letter in word:
        ctx.emit(letter)
    ctx.step("stop", lambda: ctx.emit("."))
