"""Workers and queues as they stand now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shiftboss.db.connection import Row
from shiftboss.db.insights.kept import Kept

if TYPE_CHECKING:
    from shiftboss.db.database import Database

_WORKERS = """SELECT h.*, w.queues, w.capabilities, w.resource_limits, w.resource_usage, w.region, w.host, w.pid, w.version,
    w.paused, w.draining, w.metadata, w.lease_expires_at
    FROM public.active_workers_health h JOIN public.workers w ON w.id = h.worker_id"""

_QUEUES = """WITH live AS (
    SELECT queue, count(*) FILTER (WHERE status = 'Queued') AS queued,
        count(*) FILTER (WHERE status = 'In Progress') AS running,
        count(*) FILTER (WHERE status = 'Queued' AND hold IS NULL AND coalesce(run_at, created_at) <= shiftboss.now())
            AS ready,
        min(coalesce(run_at, created_at)) FILTER (WHERE status = 'Queued' AND hold IS NULL) AS oldest
    FROM public.tasks WHERE status IN ('Queued', 'In Progress') GROUP BY queue
), names AS (
    SELECT queue AS name FROM live UNION SELECT queue FROM shiftboss.lanes
    UNION SELECT name FROM shiftboss.pauses WHERE kind = 'queue' UNION SELECT name FROM shiftboss.limits WHERE kind = 'queue'
    UNION SELECT unnest(queues) FROM public.workers WHERE status = 'active'
)
SELECT n.name, coalesce(q.queued, 0) AS queued, coalesce(q.ready, 0) AS ready, coalesce(q.running, 0) AS running,
    greatest(extract(epoch FROM shiftboss.now() - q.oldest), 0)::double precision AS oldest_seconds,
    p.name IS NOT NULL AS paused, p.reason AS pause_reason, p.paused_at,
    l.max_running, l.rate, extract(epoch FROM l.rate_period)::double precision AS rate_seconds,
    (SELECT count(*) FROM public.workers w WHERE w.status = 'active' AND (w.queues IS NULL OR n.name = ANY (w.queues)))
        AS workers
FROM names n LEFT JOIN live q ON q.queue = n.name
LEFT JOIN shiftboss.pauses p ON p.kind = 'queue' AND p.name = n.name
LEFT JOIN shiftboss.limits l ON l.kind = 'queue' AND l.name = n.name ORDER BY n.name"""


class Fleet:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._queues: Kept[list[Row]] = Kept(lambda: db.fetch(_QUEUES))

    async def workers(self, *, status: str | None = None) -> list[dict[str, Any]]:
        """Every member of the fleet with its health, current task and today's work."""
        rows = await self._db.fetch(
            f"{_WORKERS} WHERE (%(status)s::text IS NULL OR w.status = %(status)s) ORDER BY w.id",
            {"status": status},
        )
        today = await self._db.insights.series.per_worker(_midnight())
        return [row | _work(today.get(row["worker_id"])) for row in rows]

    async def worker(self, worker_id: str) -> dict[str, Any] | None:
        """One member, with what it holds now."""
        row = await self._db.fetch_one(f"{_WORKERS} WHERE w.id = %s", [worker_id])
        if row is None:
            return None
        today = await self._db.insights.series.per_worker(_midnight())
        held = await self._db.fetch(
            "SELECT id, task_type, queue, generation_started_at AS started_at, progress, progress_message"
            " FROM public.tasks WHERE status = 'In Progress' AND worker_id = %s"
            " ORDER BY generation_started_at LIMIT 100",
            [worker_id],
        )
        return row | _work(today.get(worker_id)) | {"tasks": held}

    async def queues(self, *, fresh: bool = False) -> list[Row]:
        """Every queue that has tasks, workers, a pause or a limit."""
        return await self._queues.get(fresh=fresh)


def _midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _work(row: Row | None) -> dict[str, Any]:
    if row is None:
        return {"processed_today": 0, "error_rate": 0.0, "avg_processing_seconds": None}
    ended = row["completed"] + row["failed"]
    return {
        "processed_today": ended,
        "error_rate": round(row["failed"] / ended, 4) if ended else 0.0,
        "avg_processing_seconds": round(row["seconds"] / ended, 6) if ended else None,
    }
