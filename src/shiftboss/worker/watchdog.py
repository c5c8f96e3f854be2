"""A thread that detects a blocked event loop, and finds the task that blocks it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from shiftboss.worker.mark import BLOCKED, STEP, Mark

#: The fraction of a lease after which a block is reported: late enough to ignore short blocks.
LATE = 0.8
CHECKS = 20
STILL = 3

#: The lease of the current attempt. Asyncio tasks that a handler starts inherit it.
running: ContextVar[int] = ContextVar("shiftboss_running")


class Blocked(NamedTuple):
    """A block of the event loop: the guilty lease (None: not a handler), its duration, and the code line."""

    lease: int | None
    seconds: float
    where: str


class Watchdog:
    """Calls `on_blocked` in its own thread, once per block, before the leases of this worker expire."""

    def __init__(
        self,
        mark: Mark,
        lease_seconds: float,
        last_beat: Callable[[], float],
        on_blocked: Callable[[Blocked], None],
    ) -> None:
        self._mark, self._lease = mark, lease_seconds
        self._last_beat, self._on_blocked = last_beat, on_blocked
        self._every = lease_seconds / CHECKS
        self._owners: WeakKeyDictionary[asyncio.Future[Any], int] = WeakKeyDictionary()
        self._ticked = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Watch the current event loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        if self._loop.get_task_factory() is None:
            self._loop.set_task_factory(self._create_task)
        self._tick()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._loop.get_task_factory() == self._create_task:
            self._loop.set_task_factory(None)

    def _create_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:
        """Remember which attempt started a task: tasks of `asyncio.gather` run outside the marked steps."""
        task = asyncio.Task(work, loop=loop, **options)
        lease = running.get(0)
        if lease:
            self._owners[task] = lease
        return task

    def _tick(self) -> None:
        self._ticked = time.monotonic()
        self._timer = self._loop.call_later(self._every / 2, self._tick)

    def _watch(self) -> None:
        """Check for ticks. Count checks instead of time, so that the loop can tick again after a SIGSTOP."""
        seen, still, reported = self._ticked, 0, False
        while not self._stopped.wait(self._every):
            if self._ticked != seen:
                seen, still, reported = self._ticked, 0, False
                continue
            still += 1
            if still >= STILL and not reported and time.monotonic() >= self._last_beat() + self._lease * LATE:
                reported = True
                self._on_blocked(self._blocked())

    def _blocked(self) -> Blocked:
        task = asyncio.current_task(self._loop)
        lease = self._mark.words[STEP] or (self._owners.get(task) if task is not None else None)
        self._mark.words[BLOCKED] = lease or 0
        return Blocked(lease, time.monotonic() - self._ticked, self._where())

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread)
        last = traceback.extract_stack(frame)[-1] if frame is not None else None
        return f"{last.filename}:{last.lineno} in {last.name}" if last is not None else "an unknown place"
