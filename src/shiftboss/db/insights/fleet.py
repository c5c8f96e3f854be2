"""The current state of workers and queues, and the usage of workers over the last half hour."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from shiftboss.db.connection import Row
from shiftboss.db.insights.cache import Cached
from shiftboss.db.insights.rows import (
    HeldTask,
    QueueDepth,
    QueueRow,
    TaskTypeRow,
    Work,
    WorkerDetailRow,
    WorkerRow,
)

if TYPE_CHECKING:
    from shiftboss.db.database import Database

COUNTED = 5000
# For more waiting tasks, `counted` is the leader's last count of the queue.
_DEPTHS = """SELECT q.*, CASE WHEN q.more THEN c.queued END AS counted FROM shiftboss.queues_within(%s) q
    LEFT JOIN shiftboss.queue_counts c ON c.queue = q.name ORDER BY q.name"""
POINTS = 30
_USAGE = """
SELECT worker_id, width_bucket(extract(epoch FROM shiftboss.now() - at), 0, 1800, %(points)s) AS part,
    avg(memory_mb)::float8 AS memory_mb, avg(cpu_percent)::float8 AS cpu_percent
FROM shiftboss.worker_samples WHERE at > shiftboss.now() - interval '30 minutes' GROUP BY 1, 2
"""
#: Values by worker and column over the last half hour.
UsageLines = dict[str, dict[str, list[float | None]]]


class Fleet:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._queues: Cached[list[QueueRow]] = Cached(
            lambda: db.fetch_as(QueueRow, "SELECT * FROM shiftboss.queues ORDER BY name")
        )
        self._depths: Cached[list[QueueDepth]] = Cached(self._count)
        self._usage: Cached[UsageLines] = Cached(self._read_usage)

    async def workers(self, *, status: str | None = None) -> list[WorkerRow]:
        """Return every worker with its health, current task and today's work."""
        rows = await self._db.fetch(
            "SELECT * FROM shiftboss.members WHERE (%(status)s::text IS NULL OR status = %(status)s)"
            " ORDER BY worker_id",
            {"status": status},
        )
        today = await self._db.insights.series.per_worker(_midnight())
        return [cast(WorkerRow, row | _work(today.get(row["worker_id"]))) for row in rows]

    async def worker(self, worker_id: str) -> WorkerDetailRow | None:
        """Return one worker with the tasks it is running, or None."""
        row = await self._db.fetch_one("SELECT * FROM shiftboss.members WHERE worker_id = %s", [worker_id])
        if row is None:
            return None
        today = await self._db.insights.series.per_worker(_midnight())
        held = await self._db.fetch_as(
            HeldTask,
            "SELECT id, task_type, queue, generation_started_at AS started_at, progress, progress_message"
            " FROM public.tasks WHERE status = 'In Progress' AND worker_id = %s"
            " ORDER BY generation_started_at LIMIT 100",
            [worker_id],
        )
        return cast(WorkerDetailRow, row | _work(today.get(worker_id)) | {"tasks": held})

    async def sample_workers(self) -> int:
        """Record the current usage of every active worker, and return their number."""
        return await self._db.call_value(int, "sample_workers")

    async def usage(self) -> UsageLines:
        """Return `memory_mb` and `cpu_percent` per worker and minute, oldest first. None means no sample."""
        return await self._usage.get()

    async def _read_usage(self) -> UsageLines:
        found: UsageLines = {}
        for row in await self._db.fetch(_USAGE, {"points": POINTS}):
            lines = found.setdefault(
                row["worker_id"], {name: [None] * POINTS for name in ("memory_mb", "cpu_percent")}
            )
            at = POINTS - min(max(row["part"], 1), POINTS)
            for name, line in lines.items():
                line[at] = row[name]
        return found

    async def queues(self, *, fresh: bool = False) -> list[QueueRow]:
        """Return every queue that has tasks, workers, a pause or a limit."""
        return await self._queues.get(fresh=fresh)

    async def depths(self, *, fresh: bool = False) -> list[QueueDepth]:
        """Return the same at a bounded cost.

        If `more`, only the oldest waiting tasks are counted; `counted` is the leader's last count.
        """
        return await self._depths.get(fresh=fresh)

    async def _count(self) -> list[QueueDepth]:
        rows = await self._db.fetch_as(QueueDepth, _DEPTHS, [COUNTED])
        for row in rows:
            row["queued"] = max(row["queued"], row["counted"] or 0)
        return rows

    async def types(self) -> list[TaskTypeRow]:
        """Return every task type that is known, paused or limited, with its queues."""
        return await self._db.fetch_as(
            TaskTypeRow, "SELECT * FROM shiftboss.task_types ORDER BY name LIMIT 1000"
        )


def _midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _work(row: Row | None) -> Work:
    if row is None:
        return {"processed_today": 0, "error_rate": 0.0, "avg_processing_seconds": None}
    ended = row["completed"] + row["failed"]
    return {
        "processed_today": ended,
        "error_rate": round(row["failed"] / ended, 4) if ended else 0.0,
        "avg_processing_seconds": round(row["seconds"] / ended, 6) if ended else None,
    }
