"""The one read model behind CLI, API, metrics and page: none of them has queries of its own."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from shiftboss.db.insights.condition import Condition
from shiftboss.db.insights.fleet import Fleet
from shiftboss.db.insights.overview import Overview
from shiftboss.db.insights.providers import Providers
from shiftboss.db.insights.series import Series
from shiftboss.db.insights.tasklist import BadCursor, TaskFilter, TaskList, TaskPage

if TYPE_CHECKING:
    from shiftboss.db.database import Database

__all__ = ["BadCursor", "Insights", "TaskFilter", "TaskPage"]


class Insights:
    """`db.insights.tasks.page(...)`, `db.insights.fleet.workers()` and so on. Reads only."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @cached_property
    def tasks(self) -> TaskList:
        """Lists of tasks by filter, and one task with its attempts and reasons."""
        return TaskList(self._db)

    @cached_property
    def fleet(self) -> Fleet:
        """Workers and queues."""
        return Fleet(self._db)

    @cached_property
    def series(self) -> Series:
        """What was done when, how fast, how often in vain."""
        return Series(self._db)

    @cached_property
    def providers(self) -> Providers:
        """AI providers and the cache of their answers."""
        return Providers(self._db)

    @cached_property
    def overview(self) -> Overview:
        """Counts at a glance, alerts, the documented snapshot."""
        return Overview(self._db, self.fleet, self.series)

    @cached_property
    def condition(self) -> Condition:
        """The database itself: version, settings, bloat, clocks; and work that nobody can do."""
        return Condition(self._db)
