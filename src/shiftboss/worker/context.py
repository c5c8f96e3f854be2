"""What a handler may know about the attempt it is in."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog

from shiftboss.model.task import Claimed, storable

if TYPE_CHECKING:
    from shiftboss.db import Database

ReportProgress = Callable[[int, UUID, int, str | None], None]


class Context:
    """The first argument of a handler that asks for it (named `ctx`, or annotated `Context`)."""

    def __init__(
        self, task: Claimed, seconds: float | None, report: ReportProgress, db: Database | None = None
    ) -> None:
        self.task = task
        self._report = report
        self._db = db
        self._ends = None if seconds is None else time.monotonic() + seconds
        self.cancelled = False

    @property
    def id(self) -> UUID:
        return self.task.id

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self.task.attempt

    @property
    def deadline(self) -> datetime | None:
        return self.task.deadline

    @property
    def seconds_left(self) -> float | None:
        """Until this attempt is ended by force; None: no limit."""
        return None if self._ends is None else self._ends - time.monotonic()

    def progress(self, percent: float, message: str | None = None) -> None:
        """Show how far this is, from 0 to 100. Cheap: call it as often as you like, from any thread."""
        percent = int(min(max(0, percent), 100))  # in this order also for what is not a number
        self._report(self.task.lease, self.task.id, percent, message and storable(str(message)))

    @property
    def db(self) -> Database:
        """The worker's database, for handlers that need one."""
        if self._db is None:
            raise RuntimeError("this worker has no database: it is fed by a coordinator")
        return self._db

    @cached_property
    def log(self) -> Any:
        """A logger that carries the task's id, type and attempt."""
        return structlog.get_logger().bind(
            task_id=str(self.task.id), task_type=self.task.task_type, attempt=self.task.attempt
        )
