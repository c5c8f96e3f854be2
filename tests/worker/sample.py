"""Handlers for tests with real worker processes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from shiftboss.worker.handlers import Handlers

handlers = Handlers()


@handlers.task("echo")
async def echo(text: str) -> str:
    return text


@handlers.task("wait_for")
async def wait_for(path: str) -> str:
    """Ends when the file appears."""
    Path(path + ".started").touch()
    while not Path(path).exists():
        await asyncio.sleep(0.02)
    return "seen"


@handlers.task("die")
def die() -> None:
    os._exit(7)


@handlers.task("block_loop")
async def block_loop(seconds: float) -> None:
    time.sleep(seconds)
