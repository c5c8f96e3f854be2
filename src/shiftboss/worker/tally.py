"""What this worker did since its last beat: counts and durations per task type."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from shiftboss.model.task import BUCKETS, Complete, Fail, Report


class Tally:
    """Counters that a beat takes along, and puts back when it does not land."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[Any]] = {}
        self.completed = 0
        self.failed = 0
        self.last_error: str | None = None

    def add(self, report: Report) -> None:
        outcome = report.outcome
        done, failed = isinstance(outcome, Complete), isinstance(outcome, Fail)
        if not done and not failed:
            return
        key = (report.task.queue, report.task.task_type)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = [0, 0, 0.0, [0] * (len(BUCKETS) + 1)]
        row[0] += done
        row[1] += failed
        row[2] += report.seconds
        row[3][bisect_left(BUCKETS, report.seconds)] += 1
        self.completed += done
        self.failed += failed
        if isinstance(outcome, Fail):
            self.last_error = outcome.error.partition("\n")[0]

    def take(self) -> list[dict[str, Any]]:
        """All rows, and start anew."""
        rows, self._rows = self._rows, {}
        return [
            {"queue": q, "task_type": t, "completed": r[0], "failed": r[1], "seconds": r[2], "buckets": r[3]}
            for (q, t), r in rows.items()
        ]

    def put_back(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            key = (row["queue"], row["task_type"])
            mine = self._rows.setdefault(key, [0, 0, 0.0, [0] * len(row["buckets"])])
            mine[0] += row["completed"]
            mine[1] += row["failed"]
            mine[2] += row["seconds"]
            mine[3] = [a + b for a, b in zip(mine[3], row["buckets"], strict=True)]
