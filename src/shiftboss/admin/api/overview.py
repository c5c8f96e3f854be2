"""The fleet at a glance."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import Field

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import FilterText, Out, make_router
from shiftboss.admin.api.runs import RunStatus
from shiftboss.admin.api.workers import Worker
from shiftboss.admin.desk import At

router = make_router("overview")


class Alert(Out):
    severity: Literal["critical", "warning"]
    kind: str = Field(examples=["stale_worker"])
    subject: str | None = Field(description="the worker, slot, task or provider that it is about")
    message: str


class Counts(Out):
    queued_tasks: int
    running_tasks: int
    completed_tasks: int
    failed_tasks: int
    cancelled_tasks: int
    inactive_workers: int
    active_workers: int
    terminated_workers: int
    external_workers: int
    stale_workers: int
    stuck_tasks: int
    snapshot_time: datetime


class Overview(Counts):
    active_runs: int
    slots: dict[str, int] = Field(description="slots by status")
    alerts: list[Alert]


class Latency(Out):
    p50_ms: float | None
    avg_ms: float | None
    max_ms: float | None


class CurrentRun(Out):
    id: UUID
    bot: str
    city: str | None
    category: str | None
    status: RunStatus
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


class Point(Out):
    at: datetime
    completed: int
    failed: int
    per_second: float
    error_rate: float
    avg_seconds: float | None
    p50: float | None
    p95: float | None
    p99: float | None


@router.get("/overview")
async def overview(desk: At, who: Caller) -> Overview:
    """Counts by state and what needs attention."""
    counts: dict[str, Any] = dict(await desk.db.insights.overview.counts())
    health = await desk.db.health.metrics()
    return Overview(
        **counts,
        active_runs=len(await desk.db.runs.active()),
        slots={state: health[state] for state in ("starting", "healthy", "stopping", "crashed", "failed")},
        alerts=await desk.db.insights.overview.alerts(),
    )


@router.get("/alerts")
async def alerts(desk: At, who: Caller) -> list[Alert]:
    """What needs attention, worst first."""
    return [Alert.model_validate(alert) for alert in await desk.db.insights.overview.alerts()]


@router.get("/metrics/snapshot")
async def snapshot(desk: At, who: Caller) -> Snapshot:
    """Workers, queue, latency and current runs, as they are now."""
    return Snapshot.model_validate(await desk.db.insights.overview.snapshot())


@router.get("/metrics/series")
async def series(
    desk: At,
    who: Caller,
    minutes: Annotated[int, Query(ge=1, le=7 * 24 * 60, description="how far back")] = 60,
    step: Annotated[int, Query(ge=1, le=24 * 60, description="minutes per point")] = 1,
    queue: FilterText = None,
    task_type: FilterText = None,
) -> list[Point]:
    """Throughput, errors and latency over time, oldest first."""
    span, width = timedelta(minutes=minutes), timedelta(minutes=max(step, -(-minutes // 1440)))
    points = await desk.db.insights.series.throughput(span, width, queue=queue, task_type=task_type)
    return [Point.model_validate(point) for point in points]
