"""What a worker process is doing, in memory that its supervisor can read when it is stuck or dead."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Coroutine, Generator
from mmap import mmap
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")

WORDS = 512
SIZE = WORDS * 8
#: The lease whose handler runs a step on the event loop now, 0 between steps; and since when.
STEP, SINCE = 0, 1
#: The lease that blocked the event loop, once the watchdog has found it.
BLOCKED = 2
#: When the database last failed this process.
AWAY = 3
#: How many handlers run in threads without a place in the list that follows.
UNLISTED, THREADS, THREADS_END = 4, 5, 256
#: The same for every attempt that has started. Tasks claimed ahead are not in it.
UNSTARTED, STARTED = 256, 257


class _List:
    """Leases in shared memory. Those for which no place is left are only counted, at `overflow`."""

    def __init__(self, words: memoryview[int], overflow: int, places: range) -> None:
        self._words, self._overflow = words, overflow
        self._lock = threading.Lock()
        self._free = list(reversed(places))
        self._places: dict[int, int | None] = {}

    def enter(self, lease: int) -> None:
        with self._lock:
            place = self._places[lease] = self._free.pop() if self._free else None
            if place is None:
                self._words[self._overflow] += 1
            else:
                self._words[place] = lease

    def leave(self, lease: int) -> None:
        with self._lock:
            place = self._places.pop(lease)
            if place is None:
                self._words[self._overflow] -= 1
            else:
                self._words[place] = 0
                self._free.append(place)


class Mark:
    """Written by the worker at every step, so that even a segmentation fault leaves it behind.

    Times are nanoseconds of the monotonic clock, which all processes of a host share.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """With a descriptor others can read it; without one it serves this process alone."""
        self.words = memoryview(mmap(-1 if descriptor is None else descriptor, SIZE)).cast("q")
        self._threads = _List(self.words, UNLISTED, range(THREADS, THREADS_END))
        self._started = _List(self.words, UNSTARTED, range(STARTED, WORDS))
        self.start, self.end = self._started.enter, self._started.leave  # an attempt starts and ends
        self.enter, self.leave = self._threads.enter, self._threads.leave  # a handler's thread

    @coroutine
    def steps(self, lease: int, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await `work`, marking each of its steps."""
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
                value, error = None, caught

    def away(self) -> None:
        """The database failed this process: silence towards it is not this process's fault."""
        self.words[AWAY] = time.monotonic_ns()


def accused(mark: bytes, older: float = 0.0) -> list[int]:
    """The leases that may have stopped the process: one is guilty, several are suspects, none tells nothing.

    With `older`, a step counts only if it has lasted for so many seconds: the process lived and was ended.
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
    """The leases whose attempts had started; empty if there were too many to list."""
    words = _read(mark)
    return [] if words[UNSTARTED] > 0 else [lease for lease in words[STARTED:] if lease]


def away_for(mark: bytes) -> float | None:
    """Seconds since the database last failed the process; None: it never did."""
    since = _read(mark)[AWAY]
    return (time.monotonic_ns() - since) / 1e9 if since else None


def _read(mark: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{WORDS}q", mark.ljust(SIZE, b"\0"))
