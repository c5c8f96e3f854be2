"""Shared memory in which a worker records what it runs, for its supervisor to read after a crash."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Coroutine, Generator
from contextlib import suppress
from mmap import mmap
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")

WORDS = 512
SIZE = WORDS * 8
#: The lease whose handler runs on the event loop (0 between its steps), and the start of that step.
STEP, SINCE = 0, 1
#: The lease that blocks the event loop, set by the watchdog.
BLOCKED = 2
#: When a database call last failed.
AWAY = 3
#: The number of handlers in threads that did not fit into the list, then the list itself.
UNLISTED, THREADS, THREADS_END = 4, 5, 256
#: The same for all started attempts. Tasks claimed ahead are not listed.
UNSTARTED, STARTED = 256, 257


class _List:
    """A list of leases in shared memory. Leases that do not fit are counted at `overflow`."""

    def __init__(self, words: memoryview[int], overflow: int, places: range) -> None:
        self._words, self._overflow = words, overflow
        self._lock = threading.Lock()
        self._free = list(reversed(places))
        self._places: dict[int, int | None] = {}

    def enter(self, lease: int) -> None:
        try:
            place = self._places[lease] = self._free.pop()  # threads cannot get the same place
            self._words[place] = lease
        except IndexError:
            self._places[lease] = None
            self._count(1)

    def leave(self, lease: int) -> None:
        place = self._places.pop(lease)
        if place is None:
            self._count(-1)
        else:
            self._words[place] = 0
            self._free.append(place)

    def _count(self, change: int) -> None:
        with self._lock:
            self._words[self._overflow] += change


class Mark:
    """The mark that a worker writes at every step. It survives even a segmentation fault.

    Times are nanoseconds of the monotonic clock, which all processes of a host share.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """Without a descriptor, only this process can read the mark."""
        self.words = memoryview(mmap(-1 if descriptor is None else descriptor, SIZE)).cast("q")
        self._threads = _List(self.words, UNLISTED, range(THREADS, THREADS_END))
        self._started = _List(self.words, UNSTARTED, range(STARTED, WORDS))
        self.start, self.end = self._started.enter, self._started.leave  # for attempts
        self.enter, self.leave = self._threads.enter, self._threads.leave  # for handlers in threads
        self._given_up: set[asyncio.Task[Any] | None] = set()

    @coroutine
    def steps(self, lease: int, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await `work`, and mark each of its steps."""
        words, clock = self.words, time.monotonic_ns
        value: Any = None
        error: BaseException | None = None
        while True:
            words[SINCE] = clock()
            words[STEP] = lease
            try:
                awaited = work.send(value) if error is None else work.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                words[STEP] = 0
                error = None
            try:
                value = yield awaited
            except BaseException as caught:
                if (task := asyncio.current_task()) in self._given_up:
                    self._given_up.discard(task)
                    with suppress(RuntimeError):  # it ignores even this
                        work.close()
                    raise
                value, error = None, caught

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task whose steps are marked here, and close its work even if that ignores cancellations.

        Otherwise the end of the event loop would wait for it.
        """
        self._given_up.add(task)
        task.cancel()

    def away(self) -> None:
        """Record that the database is away, which explains missing heartbeats."""
        self.words[AWAY] = time.monotonic_ns()


def suspects(mark: bytes, older: float = 0.0) -> list[int]:
    """Return the leases that may have stopped the process. One lease is guilty, several are suspects.

    An empty list means that the cause is unknown. If the process was alive until it was ended, pass `older`:
    then a step counts only if it lasted for that many seconds.
    """
    words = _read(mark)
    if words[BLOCKED]:
        return [words[BLOCKED]]
    if words[UNLISTED] > 0:
        return []
    seconds = (time.monotonic_ns() - words[SINCE]) / 1e9
    step = [words[STEP]] if words[STEP] and seconds >= older else []
    if older and not step:
        return []
    return list(dict.fromkeys([*step, *(lease for lease in words[THREADS:THREADS_END] if lease)]))


def started(mark: bytes) -> list[int]:
    """Return the leases of started attempts, or an empty list if there were too many to list."""
    words = _read(mark)
    return [] if words[UNSTARTED] > 0 else [lease for lease in words[STARTED:] if lease]


def away_for(mark: bytes) -> float | None:
    """Return the seconds since a database call last failed, or None if none did."""
    since = _read(mark)[AWAY]
    return (time.monotonic_ns() - since) / 1e9 if since else None


def _read(mark: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{WORDS}q", mark.ljust(SIZE, b"\0"))
