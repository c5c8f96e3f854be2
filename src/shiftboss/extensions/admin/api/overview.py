"""Counts, alerts and statistics of the fleet, and /metrics, /healthz and /readyz for monitoring."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import Field

from shiftboss.db.insights.rows import AlertRow, CountsRow, PointRow
from shiftboss.db.replica import state_of
from shiftboss.extensions.admin import metrics
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import FilterText, Limit, Out, make_router
from shiftboss.extensions.admin.api.workers import Worker
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.errors import DatabaseUnavailable

router = make_router("overview")
probes = APIRouter(tags=["probes"])


class Alert(AlertRow):
    """Something that needs attention. `command` can be run as printed."""


class Point(PointRow):
    """Throughput, failures and durations in one interval."""


class AlertRecord(Out):
    id: int
    rule: str = Field(examples=["queue_too_old"])
    subject: str
    severity: Literal["critical", "warning"]
    message: str
    advice: str | None
    value: float | None
    threshold: float | None
    started_at: datetime
    ended_at: datetime | None = Field(description="null while the alert is active")


class Replica(Out):
    in_use: bool
    lag_seconds: float | None
    reason: str | None = Field(description="why the replica is not used")


class Overview(CountsRow):
    active_runs: int
    slots: Annotated[dict[str, int], Field(description="slots by status")]
    alerts: list[Alert]
    replica: Annotated[Replica | None, Field(description="state of the read replica, if one is configured")]


class Latency(Out):
    p50_ms: float | None
    avg_ms: float | None
    max_ms: float | None


class CurrentRun(Out):
    id: UUID
    bot: str
    city: str | None
    category: str | None
    status: Literal["pending", "running", "finished", "failed"]
    progress: int
    started_at: datetime | None


class QueueSnapshot(Out):
    queued: int
    running: int
    failed: int
    oldest_seconds: float


class Snapshot(Out):
    at: datetime
    workers: list[Worker]
    queue: QueueSnapshot
    latency: Latency
    current_runs: list[CurrentRun]


@router.get("/overview")
async def overview(admin: At, who: Caller) -> Overview:
    """Return counts by status, and the active alerts."""
    health = await admin.reads.health.metrics()
    return Overview(
        **await admin.reads.insights.overview.counts(),
        active_runs=len((await admin.reads.insights.overview.extras())["current_runs"]),
        slots={state: health[state] for state in ("starting", "healthy", "stopping", "crashed", "failed")},
        alerts=await admin.reads.insights.overview.alerts(),
        replica=Replica.model_validate(state._asdict()) if (state := state_of(admin.reads)) else None,
    )


@router.get("/alerts")
async def alerts(admin: At, who: Caller) -> list[Alert]:
    """List active alerts, most severe first."""
    return await admin.reads.insights.overview.alerts()


@router.get("/alerts/history")
async def alert_history(admin: At, who: Caller, limit: Limit = 50) -> list[AlertRecord]:
    """List active and past alerts, newest first."""
    return [AlertRecord.model_validate(row) for row in await admin.reads.alerts.latest(limit)]


@router.get("/metrics/snapshot")
async def snapshot(admin: At, who: Caller) -> Snapshot:
    """Return the current state of workers, queue, latency and runs."""
    return Snapshot.model_validate(await admin.db.insights.overview.snapshot())


@router.get("/metrics/series")
async def series(
    admin: At,
    who: Caller,
    minutes: Annotated[int, Query(ge=1, le=7 * 24 * 60, description="length of the period in minutes")] = 60,
    step: Annotated[int, Query(ge=1, le=24 * 60, description="minutes per point")] = 1,
    queue: FilterText = None,
    task_type: FilterText = None,
) -> list[Point]:
    """Return throughput, errors and latency over time, oldest first."""
    span, width = timedelta(minutes=minutes), timedelta(minutes=max(step, -(-minutes // 1440)))
    return await admin.reads.insights.series.throughput(span, width, queue=queue, task_type=task_type)


@probes.get("/metrics", response_class=Response, responses=responses())
async def scrape(admin: At, who: Caller) -> Response:
    """Return the metrics in the Prometheus text format."""
    return Response(await metrics.metrics(admin.reads), media_type=metrics.CONTENT_TYPE)


@probes.get("/healthz")
async def alive() -> dict[str, str]:
    """Check that the process responds."""
    return {"status": "ok"}


@probes.get("/readyz", responses=responses(503))
async def ready(admin: At) -> dict[str, str]:
    """Check that the database responds and that the service receives live changes."""
    await admin.db.fetch_one("SELECT 1 AS one")
    if not admin.hub.running:
        raise DatabaseUnavailable("the service does not receive live changes")
    return {"status": "ok"}
