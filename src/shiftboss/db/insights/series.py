"""Throughput, durations and failures over time, read from the statistics instead of the history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shiftboss.db.connection import Row
from shiftboss.db.insights.cache import Cached
from shiftboss.db.insights.rows import PointRow
from shiftboss.model.task import BUCKETS

if TYPE_CHECKING:
    from shiftboss.db.database import Database


class Series:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._kept: dict[tuple[timedelta, timedelta], Cached[list[PointRow]]] = {}

    async def throughput(
        self, span: timedelta, step: timedelta, *, queue: str | None = None, task_type: str | None = None
    ) -> list[PointRow]:
        """Return one point per step, including empty ones, oldest first."""
        rows = await self._db.call_rows("throughput", span, step, queue, task_type)
        return [_point(row, step) for row in rows]

    async def kept_throughput(self, span: timedelta, step: timedelta) -> list[PointRow]:
        """Return the same from a cache, for pages that refresh often."""
        if (span, step) not in self._kept:
            self._kept[span, step] = Cached(lambda: self.throughput(span, step), 50.0)
        return await self._kept[span, step].get()

    async def per_queue(self, minutes: int = 60, points: int = 20) -> dict[str, list[int]]:
        """Return how many tasks ended in each queue, in equal intervals of the last minutes, oldest first."""
        rows = await self._db.fetch(
            "SELECT queue, pg_catalog.width_bucket(pg_catalog.date_part('epoch', shiftboss.now() - minute),"
            " 0, %(seconds)s, %(points)s) AS part, sum(completed + failed)::bigint AS ended"
            " FROM shiftboss.stats"
            " WHERE minute > shiftboss.now() - pg_catalog.make_interval(secs => %(seconds)s) GROUP BY 1, 2",
            {"seconds": minutes * 60.0, "points": points},
        )
        found: dict[str, list[int]] = {}
        for row in rows:
            series = found.setdefault(row["queue"], [0] * points)
            series[points - min(max(row["part"], 1), points)] += row["ended"]
        return found

    async def per_worker(self, since: datetime) -> dict[str, Row]:
        rows = await self._db.fetch(
            "SELECT worker_id, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,"
            " sum(seconds) AS seconds FROM shiftboss.stats WHERE minute >= %s GROUP BY worker_id",
            [since],
        )
        return {row["worker_id"]: row for row in rows}

    async def latency(self, sample: int = 1000) -> dict[str, float | None]:
        """Return the latency of the latest completed tasks of the last hour, in milliseconds."""
        row = (await self._db.call_rows("latency", sample))[0]
        return {name: None if value is None else round(value, 3) for name, value in row.items()}


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """Estimate a percentile in seconds from a histogram, by linear interpolation within a bucket."""
    total = sum(buckets)
    if not total:
        return None
    wanted, seen, low = share * total, 0, 0.0
    for count, high in zip(buckets, (*BUCKETS, BUCKETS[-1]), strict=False):
        if seen + count >= wanted and count:
            return low + (high - low) * (wanted - seen) / count
        seen, low = seen + count, high
    return BUCKETS[-1]


def _point(row: Row, step: timedelta) -> PointRow:
    ended = row["completed"] + row["failed"]
    return {
        "at": row["at"],
        "completed": row["completed"],
        "failed": row["failed"],
        "per_second": round(ended / step.total_seconds(), 3),
        "error_rate": round(row["failed"] / ended, 4) if ended else 0.0,
        "avg_seconds": round(row["seconds"] / ended, 6) if ended else None,
        "p50": percentile(row["buckets"], 0.5),
        "p95": percentile(row["buckets"], 0.95),
        "p99": percentile(row["buckets"], 0.99),
    }
