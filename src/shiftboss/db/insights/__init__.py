"""The one read model behind CLI, API, metrics and page: none of them has queries of its own."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from shiftboss.db.insights.condition import Condition
from shiftboss.db.insights.encryption import key_names
from shiftboss.db.insights.errors import Errors
from shiftboss.db.insights.failures import Failures
from shiftboss.db.insights.figures import Figures
from shiftboss.db.insights.fleet import Fleet
from shiftboss.db.insights.life import Life
from shiftboss.db.insights.overview import Overview
from shiftboss.db.insights.samples import Samples
from shiftboss.db.insights.series import Series
from shiftboss.db.insights.tasklist import BadCursor, TaskFilter, TaskList, TaskPage

if TYPE_CHECKING:
    from shiftboss.db.database import Database

__all__ = ["BadCursor", "Insights", "TaskFilter", "TaskPage"]


class Insights:
    """`db.insights.tasks.page(...)`, `db.insights.fleet.workers()` and so on. Reads only."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def keys(self) -> dict[str, int]:
        """How many stored values need each encryption key, by its name."""
        return await key_names(self._db)

    @cached_property
    def tasks(self) -> TaskList:
        """Lists of tasks by filter, and one task with its attempts and reasons."""
        return TaskList(self._db)

    @cached_property
    def life(self) -> Life:
        """One task: its steps, its stream, events about it, and the tasks around it."""
        return Life(self._db)

    @cached_property
    def failures(self) -> Failures:
        """Failed tasks, grouped by error."""
        return Failures(self._db)

    @cached_property
    def errors(self) -> Errors:
        """Groups of errors, one per cause."""
        return Errors(self._db)

    @cached_property
    def fleet(self) -> Fleet:
        """Workers and queues."""
        return Fleet(self._db)

    @cached_property
    def figures(self) -> Figures:
        """What /metrics shows, at a bounded cost."""
        return Figures(self._db)

    @cached_property
    def samples(self) -> Samples:
        """Memory and load of workers over the last half hour."""
        return Samples(self._db)

    @cached_property
    def series(self) -> Series:
        """Throughput, duration and failures over time."""
        return Series(self._db)

    @cached_property
    def overview(self) -> Overview:
        """Counts at a glance, alerts, the documented snapshot."""
        return Overview(self._db, self.fleet, self.series)

    @cached_property
    def condition(self) -> Condition:
        """The database itself: version, settings, bloat, clocks; and work that nobody can do."""
        return Condition(self._db)
