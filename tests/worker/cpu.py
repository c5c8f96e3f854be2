"""Handlers for child processes: small, since every child imports them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from shiftboss.model.errors import Defer
from shiftboss.worker.context import Context


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


ODD: dict[str, BaseException] = {
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "BaseExceptionGroup": BaseExceptionGroup("g", [SystemExit()]),
    "Unprintable": Unprintable(),
    "StopIteration": StopIteration("x"),
    "GeneratorExit": GeneratorExit(),
}


def pid() -> int:
    return os.getpid()


def raise_odd(name: str) -> None:
    raise ODD[name]


def put_off(ctx: Context, path: str) -> str:
    """Not the first time."""
    if not Path(path).exists():
        Path(path).touch()
        raise Defer("the press is busy", 0.1)
    return f"attempt {ctx.attempt}"


def not_json() -> Any:
    return object()


def fork_and_return(go: str, done: str) -> str:
    """Returns twice: the copy as soon as somebody writes to `go`; `done` ends when it is gone."""
    held = os.open(done, os.O_WRONLY)
    if os.fork() == 0:
        with open(go) as gate:
            gate.read()
        return "copy"
    os.close(held)
    return "original"


def fork_and_die(path: str) -> None:
    """The copy, in a session of its own, holds every pipe for as long as its test lasts."""
    here, there = os.pipe()
    if os.fork() == 0:
        os.setsid()
        Path(path).write_text(str(os.getpid()))
        os.close(there)
        signal.pause()
    os.close(there)
    os.read(here, 1)  # ends when the copy has left our group
    os._exit(7)


def family(path: str) -> None:
    """Has a child of its own, and never ends."""
    other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    Path(path).write_text(str(other.pid))
    signal.pause()


def seconds_left(ctx: Context) -> float | None:
    return ctx.seconds_left


LEAK: list[bytes] = []


def leak(megabytes: int, path: str | None = None) -> int:
    """Keeps what it takes; with a path it goes on until it is ended."""
    LEAK.append(b"x" * (megabytes * 1024 * 1024))
    if path is not None:
        Path(path).touch()
        signal.pause()
    return os.getpid()
