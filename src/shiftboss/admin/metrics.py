"""Prometheus text, made from the read model for each scrape: every replica shows the same fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from shiftboss.model.task import BUCKETS

if TYPE_CHECKING:
    from shiftboss.db import Database, Row

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("starting", "healthy", "stopping", "crashed", "failed")


async def metrics(db: Database) -> bytes:
    """One scrape."""
    counts = await db.insights.overview.counts()
    families = [
        *_work(await db.insights.series.totals()),
        _gauge("active_workers_total", "Workers that take tasks", counts["active_workers"]),
        _gauge("task_queue_depth", "Tasks that wait", counts["queued_tasks"]),
        _gauge("tasks_running", "Tasks in progress", counts["running_tasks"]),
        _gauge("stuck_tasks", "Tasks that run longer than they should", counts["stuck_tasks"]),
        _gauge("stale_workers", "Active workers without a recent beat", counts["stale_workers"]),
        _gauge("active_runs", "Runs that are pending or running", len(await db.runs.active())),
        *_queues(await db.insights.fleet.queues()),
        *_health(await db.health.metrics(), await db.health.slots()),
        *_coordinators(await db.fleet.coordinators()),
    ]
    registry = CollectorRegistry()
    registry.register(_Ready(families))
    return generate_latest(registry)


class _Ready(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _work(rows: list[Row]) -> Iterator[Metric]:
    processed = CounterMetricFamily(
        "worker_tasks_processed",
        "Attempts that ended, by worker, type and status",
        labels=["worker_id", "task_type", "status"],
    )
    duration = HistogramMetricFamily(
        "worker_processing_duration_seconds",
        "How long attempts took, by worker and type",
        labels=["worker_id", "task_type"],
    )
    for row in rows:
        who = [row["worker_id"], row["task_type"]]
        processed.add_metric([*who, "completed"], row["completed"])
        processed.add_metric([*who, "failed"], row["failed"])
        duration.add_metric(who, _cumulated(row["buckets"]), row["seconds"])
    yield processed
    yield duration


def _cumulated(counts: list[int]) -> list[tuple[str, float]]:
    total, buckets = 0, []
    bounds = [*map(str, BUCKETS), "+Inf"]
    for bound, count in zip(bounds, [*counts, *[0] * (len(bounds) - len(counts))], strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


def _queues(rows: list[Row]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("queue_depth", "Tasks that wait, by queue", labels=["queue"])
    oldest = GaugeMetricFamily("queue_oldest_seconds", "Age of the oldest waiting task", labels=["queue"])
    for row in rows:
        depth.add_metric([row["name"]], row["queued"])
        oldest.add_metric([row["name"]], row["oldest_seconds"] or 0.0)
    yield depth
    yield oldest


def _health(totals: Row, slots: list[Row]) -> Iterator[Metric]:
    restarts = GaugeMetricFamily("worker_restart_count", "Restarts of a slot", labels=["component"])
    for slot in slots:
        restarts.add_metric([slot["component"]], slot["restart_count"])
    yield restarts
    yield CounterMetricFamily("worker_crashes", "Crashes of slots", value=totals["crashes_total"])
    yield CounterMetricFamily("worker_restarts", "Restarts of slots", value=totals["restarts_total"])
    if totals["seconds_since_last_crash"] is not None:
        yield _gauge(
            "worker_seconds_since_last_crash",
            "Time since the last crash",
            totals["seconds_since_last_crash"],
        )
    states = GaugeMetricFamily("workers_by_status", "Slots per status", labels=["status"])
    for state in STATES:
        states.add_metric([state], totals[state])
    yield states


def _coordinators(rows: list[Row]) -> Iterator[Metric]:
    """How long a scheduling pass and its claim take, by coordinator."""
    labels = ["coordinator", "quantile"]
    for name, figure in (("scheduling_seconds", "scheduling"), ("claim_seconds", "claim")):
        family = GaugeMetricFamily(f"coordinator_{name}", f"Latency of {figure} in a pass", labels=labels)
        for row in rows:
            for quantile, key in (("0.5", "p50"), ("0.99", "p99")):
                family.add_metric([row["name"], quantile], row["figures"].get(f"{figure}_{key}_seconds", 0.0))
        yield family
