"""Counts and durations of finished tasks since the last heartbeat, per queue and task type."""

from __future__ import annotations

from bisect import bisect
from typing import Any

from shiftboss.model.task import BUCKETS, Complete, Fail, Report


class Counters:
    """Counts the reports of a worker. Heartbeats send the counts until one succeeds."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[Any]] = {}
        self._sent: list[dict[str, Any]] = []
        self._beat = 0
        self.completed = 0
        self.failed = 0

    def add(self, report: Report) -> None:
        task, outcome, seconds = report
        done, failed = type(outcome) is Complete, type(outcome) is Fail
        if not done and not failed:
            return
        key = (task.queue, task.task_type)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = [0, 0, 0.0, [0] * (len(BUCKETS) + 1)]
        row[0] += done
        row[1] += failed
        row[2] += seconds
        row[3][bisect(BUCKETS, seconds)] += 1
        self.completed += done
        self.failed += failed

    def take(self) -> list[dict[str, Any]]:
        """Return all rows that are not confirmed, each with the number of the beat that first sent it.

        A failed beat may have been counted nevertheless. Its rows are sent again unchanged with the same
        number, by which the database recognizes them.
        """
        if self._rows:
            self._beat += 1
            fields = ("queue", "task_type", "completed", "failed", "seconds", "buckets", "beat")
            rows = ((*key, *figures, self._beat) for key, figures in self._rows.items())
            self._sent += [dict(zip(fields, row, strict=True)) for row in rows]
            self._rows = {}
        return list(self._sent)

    def confirm(self) -> None:
        """Drop the rows of the last `take`, which have been counted."""
        self._sent.clear()
