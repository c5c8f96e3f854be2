"""The read model behind the CLI, API, metrics and dashboard, which have no queries of their own."""

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
    """Read-only queries: `db.insights.tasks.page(...)`, `db.insights.fleet.workers()` and so on."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def keys(self) -> dict[str, dict[str, int]]:
        """Return how many stored values of each table need each encryption key, by key name."""
        return await key_names(self._db)

    @cached_property
    def tasks(self) -> TaskList:
        """Lists of tasks by filter, and one task with its attempts and reasons."""
        return TaskList(self._db)

    @cached_property
    def life(self) -> Life:
        """The steps, stream, events, logs and relatives of one task."""
        return Life(self._db)

    @cached_property
    def failures(self) -> Failures:
        """Failed tasks, grouped by error."""
        return Failures(self._db)

    @cached_property
    def errors(self) -> Errors:
        """Error groups, one per cause."""
        return Errors(self._db)

    @cached_property
    def fleet(self) -> Fleet:
        """Workers and queues."""
        return Fleet(self._db)

    @cached_property
    def figures(self) -> Figures:
        """The figures of /metrics, at a bounded cost."""
        return Figures(self._db)

    @cached_property
    def samples(self) -> Samples:
        """Memory and CPU usage of workers over the last half hour."""
        return Samples(self._db)

    @cached_property
    def series(self) -> Series:
        """Throughput, duration and failures over time."""
        return Series(self._db)

    @cached_property
    def overview(self) -> Overview:
        """Counts, alerts and the documented snapshot."""
        return Overview(self._db, self.fleet, self.series)

    @cached_property
    def condition(self) -> Condition:
        """The state of the database: version, settings, bloat, clocks, and tasks that no worker can run."""
        return Condition(self._db)
