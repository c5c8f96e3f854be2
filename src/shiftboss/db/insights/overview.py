"""An overview of the fleet: counts, alerts, and the documented snapshot."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from shiftboss.db.connection import Row
from shiftboss.db.insights.cache import Cached
from shiftboss.db.insights.fleet import Fleet
from shiftboss.db.insights.rows import AlertRow, CountsRow, Glance
from shiftboss.db.insights.series import Series
from shiftboss.extension import contributions, load, named

if TYPE_CHECKING:
    from shiftboss.db.database import Database

# Uses the index on waiting tasks, so the cost does not depend on their number. Suspended tasks do not count,
# because they do not wait for a worker.
_OLDEST = """SELECT coalesce(greatest(extract(epoch FROM shiftboss.now() - min(created_at)), 0), 0)::float8
    AS seconds FROM public.tasks
    WHERE status = 'Queued' AND (hold IS NULL OR hold NOT IN ('sleep', 'event', 'child'))"""
_GLANCE = """SELECT (SELECT count(*) FROM public.tasks WHERE status = 'In Progress') AS running,
        (SELECT count(*) FROM public.workers WHERE status = 'active') AS workers,
        coalesce(sum(in_table) FILTER (WHERE status = 'Failed'), 0)::bigint AS failed
    FROM shiftboss.finished_totals"""
_STALE = """SELECT worker_id, health_status, heartbeat_age_seconds FROM public.active_workers_health
    WHERE health_status IN ('STALE_HEARTBEAT', 'NO_HEARTBEAT') ORDER BY worker_id LIMIT 50"""
_STUCK = """SELECT id, task_type, worker_id, generation_started_at,
        extract(epoch FROM shiftboss.now() - generation_started_at)::double precision AS seconds
    FROM public.tasks WHERE status = 'In Progress'
      AND generation_started_at < shiftboss.now() - shiftboss.setting('stuck_after', '10 minutes')::interval
    ORDER BY generation_started_at LIMIT 50"""


class Overview:
    def __init__(self, db: Database, fleet: Fleet, series: Series) -> None:
        self._db = db
        self._fleet = fleet
        self._series = series
        self._counts: Cached[CountsRow] = Cached(self._count)

    async def _count(self) -> CountsRow:
        return (await self._db.fetch_as(CountsRow, "SELECT * FROM public.orchestrator_status"))[0]

    async def counts(self, *, fresh: bool = False) -> CountsRow:
        """Return tasks and workers by state: the row of the view `orchestrator_status`."""
        return await self._counts.get(fresh=fresh)

    async def glance(self) -> Glance:
        """Return running and failed tasks and active workers, at a cost that does not grow with the queue."""
        return (await self._db.fetch_as(Glance, _GLANCE))[0]

    async def alerts(self) -> list[AlertRow]:
        """Return what needs attention, most severe first. `subject` is the id of the cause.

        This combines what is found now with the alerts of rules, which the leader evaluates.
        """
        firing = {(row["rule"], row["subject"]): row for row in await self._db.alerts.firing()}
        now = await self._now()
        for one in now:
            known = firing.pop((one["rule"], one["subject"] or ""), None)
            one["since"] = known["started_at"] if known else None
        for row in firing.values():
            about = (row["severity"], row["rule"], row["subject"] or None, row["message"])
            now.append(alert(*about, command=row["advice"], since=row["started_at"]))
        return sorted(now, key=lambda one: one["severity"])

    async def _now(self) -> list[AlertRow]:
        slots = await self._db.health.alerts()
        found = [alert("critical", row["alert"], row["component"], row["message"]) for row in slots]
        for row in await self._db.fetch(_STALE):
            show = "shiftboss health"
            found.append(alert("warning", "stale_worker", row["worker_id"], _silence(row), command=show))
        for row in await self._db.fetch(_STUCK):
            show = f"shiftboss tasks show {row['id']}"
            found.append(alert("warning", "stuck_task", str(row["id"]), _running(row), command=show))
        for find in contributions("alerts"):
            found += await find(self._db)
        return found

    async def snapshot(self) -> dict[str, Any]:
        """Return the documented snapshot, computed for this call."""
        counts = await self.counts(fresh=True)
        return {
            "at": counts["snapshot_time"],
            "workers": await self._fleet.workers(status="active"),
            "queue": {
                "queued": counts["queued_tasks"],
                "running": counts["running_tasks"],
                "failed": counts["failed_tasks"],
                "oldest_seconds": await self._db.value(float, _OLDEST),
            },
            "latency": await self._series.latency(),
            **await self.extras(),
        }

    async def extras(self) -> dict[str, Any]:
        """Return what extensions add to the snapshot. The documented `current_runs` is always present."""
        parts = {key: await load(target)(self._db) for key, target in named("snapshot").items()}
        return {"current_runs": []} | parts


def alert(
    severity: Literal["critical", "warning"],
    kind: str,
    subject: str | None,
    message: str,
    advice: str | None = None,
    *,
    command: str | None = None,
    rule: str | None = None,
    since: datetime | None = None,
) -> AlertRow:
    """Build an alert. `advice` says what to do, and `command` can be run as printed.

    `rule` names the rule that detects the same problem, if its name differs from `kind`.
    """
    return AlertRow(
        severity=severity, kind=kind, subject=subject, message=message, advice=advice, command=command,
        rule=rule or kind, since=since,
    )  # fmt: skip


def _silence(row: Row) -> str:
    if row["heartbeat_age_seconds"] is None:
        return f"worker {row['worker_id']} has never sent a heartbeat"
    return f"worker {row['worker_id']} has been silent for {row['heartbeat_age_seconds']:.0f} s"


def _running(row: Row) -> str:
    return f"{row['task_type']} has been running for {row['seconds']:.0f} s on {row['worker_id']}"
