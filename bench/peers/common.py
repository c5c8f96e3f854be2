"""Code that all drivers share: the command line, and the file in which workers count the tasks they ran.

Only the standard library: this module is imported in every peer's own environment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

SLOT = struct.Struct("q")
HANG = -1
PAUSE = float(os.environ.get("BENCH_PAUSE") or 0)
"""What each task waits for, like an answer from a network."""
BLOB = "x" * int(os.environ.get("BENCH_BLOB") or 0)
"""What each task carries beside its argument."""


class Tally:
    """Counts runs in a memory-mapped file, one slot per process, and keeps the probes' latencies.

    A probe is a task whose argument is the moment at which it was sent (nanoseconds of the monotonic clock,
    which is the same in all processes of a machine); load and drain tasks carry 0, and one that never ends
    carries HANG.
    """

    def __init__(self) -> None:
        with Path(os.environ["BENCH_TALLY"]).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._offset = SLOT.size * int(os.environ.get("BENCH_SLOT", "0"))
        self._count = 0
        self._probes = Path(os.environ["BENCH_TALLY"] + ".probes")

    def hit(self, sent: int) -> None:
        self._count += 1
        SLOT.pack_into(self._map, self._offset, self._count)
        if sent == HANG:
            time.sleep(600)
        elif sent:
            with self._probes.open("a") as file:
                file.write(f"{time.monotonic_ns() - sent}\n")


def pace(rate: float, count: int, send: Callable[[int], Any]) -> None:
    """Call `send(now)` `count` times, evenly spaced, `rate` times per second."""
    start = time.monotonic()
    for n in range(count):
        time.sleep(max(0.0, start + n / rate - time.monotonic()))
        send(_word())


async def pace_async(rate: float, count: int, send: Callable[[int], Awaitable[Any]]) -> None:
    start = time.monotonic()
    for n in range(count):
        await asyncio.sleep(max(0.0, start + n / rate - time.monotonic()))
        await send(_word())


def _word() -> int:
    """The argument of a probe: the time, or the value from the environment."""
    return int(os.environ.get("BENCH_SENT") or time.monotonic_ns())


def timed(function: Callable[[], Any]) -> dict[str, float]:
    began = time.perf_counter()
    function()
    return {"seconds": time.perf_counter() - began}


async def timed_async(work: Awaitable[Any]) -> dict[str, float]:
    began = time.perf_counter()
    await work
    return {"seconds": time.perf_counter() - began}


async def clients_async(
    count: int, seconds: float, enqueue: Callable[[], Awaitable[Any]]
) -> dict[str, float]:
    """Enqueues per second by this many concurrent clients, each enqueuing one task at a time."""
    ends = time.monotonic() + seconds

    async def client() -> int:
        done = 0
        while time.monotonic() < ends:
            await enqueue()
            done += 1
        return done

    return {"rate": sum(await asyncio.gather(*(client() for _ in range(count)))) / seconds}


TICK = 0.02


def main(driver: ModuleType | Any, argv: Sequence[str] | None = None) -> None:
    """Run one function of the driver, async or not, which returns figures or None."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.add_argument("--url", required=True)
    parser.add_argument("--n", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0)
    options = parser.parse_args(argv)
    verb = getattr(driver, options.verb.replace("-", "_"))
    wanted = verb.__code__.co_varnames[: verb.__code__.co_argcount]
    result = verb(**{name: getattr(options, name) for name in wanted if hasattr(options, name)})
    if asyncio.iscoroutine(result):
        result = asyncio.run(result)
    print(json.dumps(result or {}), flush=True)
