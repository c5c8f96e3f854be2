"""Memory and CPU usage of workers over the last half hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.db.insights.cache import Cached

if TYPE_CHECKING:
    from shiftboss.db.database import Database

POINTS = 30
_SERIES = """
SELECT worker_id, width_bucket(extract(epoch FROM shiftboss.now() - at), 0, 1800, %(points)s) AS part,
    avg(memory_mb)::float8 AS memory_mb, avg(cpu_percent)::float8 AS cpu_percent
FROM shiftboss.worker_samples WHERE at > shiftboss.now() - interval '30 minutes' GROUP BY 1, 2
"""
Lines = dict[str, dict[str, list[float | None]]]


class Samples:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._kept: Cached[Lines] = Cached(self._read)

    async def take(self) -> int:
        """Record the current usage of every active worker, and return their number."""
        return await self._db.call_value(int, "sample_workers")

    async def lines(self) -> Lines:
        """Return `memory_mb` and `cpu_percent` per worker and minute, oldest first. None means no sample."""
        return await self._kept.get()

    async def _read(self) -> Lines:
        found: Lines = {}
        for row in await self._db.fetch(_SERIES, {"points": POINTS}):
            lines = found.setdefault(
                row["worker_id"], {name: [None] * POINTS for name in ("memory_mb", "cpu_percent")}
            )
            at = POINTS - min(max(row["part"], 1), POINTS)
            for name, line in lines.items():
                line[at] = row[name]
        return found
