"""Handlers of the workers that these tests put under supervision."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from shiftboss.worker.handlers import Handlers

app = Handlers()
hoard: list[bytes] = []


@app.task("nothing")
async def nothing() -> int:
    return os.getpid()


@app.task("wait_for")
async def wait_for(path: str) -> str:
    while not Path(path).exists():
        await asyncio.sleep(0.02)
    return "done"


@app.task("kill")
async def kill(number: int) -> None:
    os.kill(os.getpid(), number)
    await asyncio.sleep(60)


@app.task("exit")
async def leave(status: int) -> None:
    os._exit(status)


@app.task("block")
async def block() -> None:
    time.sleep(600)  # blocks the event loop: no beat any more


@app.task("nap")
async def nap(seconds: float) -> None:
    time.sleep(seconds)  # blocks the event loop, but not for long


@app.task("block_in_part")
async def block_in_part() -> None:
    async def part() -> None:
        time.sleep(600)

    await asyncio.gather(part(), asyncio.sleep(0))


@app.task("hold_interpreter")
async def hold_interpreter() -> None:
    ctypes.PyDLL(None).sleep(600)  # as C code that keeps the interpreter's lock


@app.task("thread_wait")
def thread_wait(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.02)
    return "done"


@app.task("thread_exit")
def thread_exit(status: int) -> None:
    os._exit(status)


@app.task("grow")
async def grow(megabytes: int) -> None:
    hoard.append(b"x" * megabytes * 1024 * 1024)


@app.task("fork")
async def fork(path: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(path).write_text(str(child.pid))
    os.kill(os.getpid(), signal.SIGKILL)
