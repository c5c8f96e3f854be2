"""How many tasks a worker claims at a time, and when it has claimed enough."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import Claimed
from shiftboss.worker.executor import Executor
from shiftboss.worker.limits import ProcessLimits

if TYPE_CHECKING:
    from shiftboss.worker.engines import Engine

AHEAD_SECONDS = 0.1
AHEAD_BYTES = 16 * 1024 * 1024


class Capacity:
    """Computes the size of claims from the settings, the limits and the pace of tasks."""

    def __init__(
        self, settings: WorkerSettings, limits: ProcessLimits, executor: Executor, engine: Engine | None
    ) -> None:
        self._settings, self._limits = settings, limits
        self._executor, self._engine = executor, engine
        self._claimed = self._empty_claims = 0
        self._size = 0.0
        self.pace: float | None = None
        """The average duration of tasks in seconds. None: unknown."""
        self.held_back: str | None = None
        """Why the worker claims nothing, if a limit or the engine is the reason."""

    def note(self, seconds: float) -> None:
        """Record the duration of a task."""
        self.pace = seconds if self.pace is None else self.pace + 0.1 * (seconds - self.pace)

    def weigh(self, claimed: Sequence[Claimed]) -> None:
        """Estimate the size of tasks by the params of one of them."""
        if claimed:
            size = len(orjson.dumps(claimed[0].params, default=str))
            self._size += 0.5 * (size - self._size)

    def ahead(self) -> int:
        """Return how many tasks to claim beyond the concurrency: work for 0.1 seconds, up to 16 MB."""
        if self.pace is None or self._engine is not None:
            return 0
        work = self._settings.concurrency * AHEAD_SECONDS / max(self.pace, 1e-6)
        return int(min(self._settings.batch, work, AHEAD_BYTES / max(self._size, 1.0)))

    def room(self, running: int, waiting: int) -> int:
        """Return how many tasks to claim now, beside `running` tasks and `waiting` ones not started yet."""
        self.held_back = self._limits.exceeded()
        if self.held_back is not None:
            return 0
        left = self._settings.batch
        if self._settings.max_tasks is not None:
            left = min(left, self._settings.max_tasks - self._claimed)
        if self._engine is not None:
            room = self._engine.room(running + waiting)
            self.held_back = self._engine.full() if room <= 0 else None
            return min(room, left)
        ahead = self.ahead()
        room = self._executor.free(running, self._settings.concurrency) + ahead - waiting
        return min(room, left) if room > ahead // 2 else 0

    def usage(self, running: int) -> dict[str, Any]:
        """Return what heartbeats say of the load, beside `running` tasks."""
        usage = self._limits.usage() | {
            "running": running,
            "goroutine_count": len(asyncio.all_tasks()) + threading.active_count(),
            "abandoned": self._executor.abandoned,
        }
        return usage | ({"held_back": self.held_back} if self.held_back else {})

    def is_done(self, claimed: int, busy: bool) -> bool:
        """Record a claim. Return whether `max_tasks` or `exit_when_empty` says that the worker should end.

        One empty claim is not enough: a source may deliver tasks with a delay.
        """
        self._claimed += claimed
        self._empty_claims = 0 if claimed or busy else self._empty_claims + 1
        if self._settings.exit_when_empty and self._empty_claims > 1:
            return True
        return self._settings.max_tasks is not None and self._claimed >= self._settings.max_tasks
