"""Prometheus metrics. Each scrape reads the database, so all replicas of the service show the same fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shiftboss.db import Database, Row
from shiftboss.db.insights.rows import QueueFigures, WorkFigures
from shiftboss.db.replica import state_of
from shiftboss.extension import contributions
from shiftboss.model.task import BUCKETS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("starting", "healthy", "stopping", "crashed", "failed")
PROCESSED = "worker_tasks_processed_total"
DURATION = "worker_processing_duration_seconds"
BOUNDS = [*map(str, BUCKETS), "+Inf"]
_LABELS = "\0"
_COUNTS_HEAD = (
    f"# HELP {PROCESSED} Attempts that ended, by worker, type and status\n# TYPE {PROCESSED} counter\n"
)
_COUNTS = "".join(f'{PROCESSED}{{{_LABELS},status="{status}"}} %d.0\n' for status in ("completed", "failed"))
_HISTOGRAM_HEAD = (
    f"# HELP {DURATION} How long attempts took, by worker and type\n# TYPE {DURATION} histogram\n"
)
_HISTOGRAM = (
    "".join(f'{DURATION}_bucket{{{_LABELS},le="{bound}"}} %d.0\n' for bound in BOUNDS)
    + f"{DURATION}_count{{{_LABELS}}} %d.0\n{DURATION}_sum{{{_LABELS}}} %r\n"
)
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


async def metrics(db: Database) -> bytes:
    """Return all metrics in the Prometheus text format."""
    fleet, queues = await db.insights.figures.fleet(), await db.insights.figures.queues()
    families = [
        gauge("active_workers_total", "Workers that take tasks", fleet["active_workers"]),
        gauge("task_queue_depth", "Tasks that wait for a worker", sum(row["queued"] or 0 for row in queues)),
        gauge("tasks_suspended", "Tasks that sleep, or wait for an event or a child", fleet["suspended"]),
        gauge("tasks_running", "Tasks in progress", fleet["running"]),
        gauge("stuck_tasks", "Tasks that run longer than they should", fleet["stuck"]),
        gauge("stale_workers", "Active workers without a recent beat", fleet["stale_workers"]),
        gauge("leader_present", "1 while a process leads the fleet", int(fleet["led"])),
        counter("leader_changes", "How often a process became the leader", fleet["leader_changes"]),
        counter("lost_leases", "Attempts that ended because their worker was lost", fleet["lost_leases"]),
        counter("stale_reports", "Reports that came after their lease had ended", fleet["stale_reports"]),
        *_queues(queues),
        *_health(await db.health.metrics(), await db.health.slots()),
        *_replica(db),
        *[family for find in contributions("metrics") for family in await find(db)],
    ]
    registry = CollectorRegistry()
    registry.register(_Ready(families))
    return _work(await db.insights.figures.work()).encode() + generate_latest(registry)


class _Ready(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _work(rows: list[WorkFigures]) -> str:
    """Format the metrics per worker and task type with templates, ten times as fast as the library."""
    labels = [f'worker_id="{_safe(row["worker_id"])}",task_type="{_safe(row["task_type"])}"' for row in rows]
    counts = [_COUNTS % (row["completed"], row["failed"]) for row in rows]
    histograms = [_HISTOGRAM % (*_sums(row["buckets"]), sum(row["buckets"]), row["seconds"]) for row in rows]
    parts = (
        one.replace(_LABELS, label)
        for some in (counts, histograms)
        for one, label in zip(some, labels, strict=True)
    )
    texts = list(parts)
    return "".join([_COUNTS_HEAD, *texts[: len(rows)], _HISTOGRAM_HEAD, *texts[len(rows) :]])


def _sums(counts: list[int]) -> Iterable[int]:
    return accumulate([*counts, *[0] * (len(BOUNDS) - len(counts))][: len(BOUNDS)])


def _safe(text: str) -> str:
    return text.translate(ESCAPES)


def _queues(rows: list[QueueFigures]) -> Iterator[Metric]:
    depth = GaugeMetricFamily("queue_depth", "Tasks that wait, by queue", labels=["queue"])
    oldest = GaugeMetricFamily("queue_oldest_seconds", "Age of the oldest waiting task", labels=["queue"])
    for row in rows:
        depth.add_metric([row["name"]], row["queued"] or 0)
        oldest.add_metric([row["name"]], row["oldest_seconds"])
    yield depth
    yield oldest


def _replica(db: Database) -> Iterator[Metric]:
    state = state_of(db)
    if state is None:
        return
    yield gauge("read_replica_in_use", "1 while lists and figures come from the replica", int(state.in_use))
    if state.lag_seconds is not None:
        yield gauge("read_replica_lag_seconds", "How far the replica is behind", state.lag_seconds)


def _health(totals: Row, slots: list[Row]) -> Iterator[Metric]:
    restarts = GaugeMetricFamily("worker_restart_count", "Restarts of a slot", labels=["component"])
    for slot in slots:
        restarts.add_metric([slot["component"]], slot["restart_count"])
    yield restarts
    yield counter("worker_crashes", "Crashes of slots", totals["crashes_total"])
    yield counter("worker_restarts", "Restarts of slots", totals["restarts_total"])
    if totals["seconds_since_last_crash"] is not None:
        yield gauge(
            "worker_seconds_since_last_crash",
            "Time since the last crash",
            totals["seconds_since_last_crash"],
        )
    states = GaugeMetricFamily("workers_by_status", "Slots per status", labels=["status"])
    for state in STATES:
        states.add_metric([state], totals[state])
    yield states
