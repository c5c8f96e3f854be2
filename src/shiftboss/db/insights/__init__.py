"""The read model behind the CLI, API, metrics and dashboard, which have no queries of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.db.insights.condition import Condition
from shiftboss.db.insights.errors import Errors
from shiftboss.db.insights.figures import Figures
from shiftboss.db.insights.fleet import Fleet
from shiftboss.db.insights.life import Life
from shiftboss.db.insights.overview import Overview
from shiftboss.db.insights.series import Series
from shiftboss.db.insights.tasklist import BadCursor, TaskFilter, TaskList, TaskPage

if TYPE_CHECKING:
    from shiftboss.db.database import Database

__all__ = ["BadCursor", "Insights", "TaskFilter", "TaskPage"]


class Insights:
    """Read-only queries: `db.insights.tasks.page(...)`, `db.insights.fleet.workers()` and so on."""

    def __init__(self, db: Database) -> None:
        self.tasks = TaskList(db)
        """Lists of tasks by filter, and one task with its attempts and reasons."""
        self.life = Life(db)
        """The steps, stream, events, logs and relatives of one task."""
        self.errors = Errors(db)
        """Error groups, one per cause."""
        self.fleet = Fleet(db)
        """Workers and their usage of memory and CPU, queues, task types."""
        self.figures = Figures(db)
        """The figures of /metrics, at a bounded cost."""
        self.series = Series(db)
        """Throughput, duration and failures over time."""
        self.overview = Overview(db, self.fleet, self.series)
        """Counts, alerts and the documented snapshot."""
        self.condition = Condition(db)
        """The database: version, settings, bloat, clocks, keys in use, and tasks that no worker can run."""
