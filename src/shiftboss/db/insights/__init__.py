"""The read model behind the CLI, API, metrics and dashboard, which have no queries of their own."""

from __future__ import annotations

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
        self.tasks = TaskList(db)
        """Lists of tasks by filter, and one task with its attempts and reasons."""
        self.life = Life(db)
        """The steps, stream, events, logs and relatives of one task."""
        self.failures = Failures(db)
        """Failed tasks, grouped by error."""
        self.errors = Errors(db)
        """Error groups, one per cause."""
        self.fleet = Fleet(db)
        """Workers and queues."""
        self.figures = Figures(db)
        """The figures of /metrics, at a bounded cost."""
        self.samples = Samples(db)
        """Memory and CPU usage of workers over the last half hour."""
        self.series = Series(db)
        """Throughput, duration and failures over time."""
        self.overview = Overview(db, self.fleet, self.series)
        """Counts, alerts and the documented snapshot."""
        self.condition = Condition(db)
        """The state of the database: version, settings, bloat, clocks, and tasks that no worker can run."""

    async def keys(self) -> dict[str, dict[str, int]]:
        """Return how many stored values of each table need each encryption key, by key name."""
        return await key_names(self._db)
