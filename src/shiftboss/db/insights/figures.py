"""The figures behind /metrics. No query reads the history or the whole backlog."""

from __future__ import annotations

from shiftboss.db.family import Family
from shiftboss.db.insights.rows import FleetFigures, QueueFigures, WorkFigures

#: A scrape counts at most this many waiting tasks. For more, it shows the leader's last count of the queue.
COUNTED = 2000
QUEUES = 200

_QUEUES = """SELECT q.name, CASE WHEN q.more THEN greatest(q.queued, c.queued) ELSE q.queued END AS queued,
        coalesce(q.oldest_seconds, 0) AS oldest_seconds
    FROM shiftboss.queues_within(%s) q LEFT JOIN shiftboss.queue_counts c ON c.queue = q.name
    ORDER BY 2 DESC NULLS LAST, 1 LIMIT %s"""


class Figures(Family):
    async def fleet(self) -> FleetFigures:
        """Return workers, running tasks and counters of the whole fleet."""
        return (await self._db.fetch_as(FleetFigures, "SELECT * FROM shiftboss.fleet_metrics()"))[0]

    async def work(self) -> list[WorkFigures]:
        """Return attempts by worker and task type with a histogram, for workers that still exist."""
        return await self._db.fetch_as(WorkFigures, "SELECT * FROM shiftboss.work_metrics()")

    async def queues(self) -> list[QueueFigures]:
        """Return the depth and the age of the oldest ready task of the 200 longest queues."""
        return await self._db.fetch_as(QueueFigures, _QUEUES, [COUNTED, QUEUES])
