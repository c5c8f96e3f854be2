"""Handlers for tests with real worker processes."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
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


@handlers.task("block_loop")
async def block_loop(path: str) -> None:
    """Never gives the loop a chance."""
    Path(path + ".started").touch()
    while True:
        time.sleep(3600)


@handlers.task("deaf")
async def deaf(path: str) -> None:
    """Does not take no for an answer."""
    Path(path + ".started").touch()
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@handlers.task("fork")
async def fork(path: str) -> int:
    """Comes back twice."""
    pid = os.fork()
    if pid == 0:
        Path(path + ".forked").write_text(str(os.getpid()))
    return pid
