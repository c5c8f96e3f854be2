"""The pruner: deletes old rows as fast as they accumulate."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from shiftboss.db import Database
from shiftboss.db.insights.figures import COUNTED
from shiftboss.leader.election import Duty
from shiftboss.model.settings import LeaderSettings

TIDY_SECONDS = 600.0
FOLD_SECONDS = 5.0


class BatchSize:
    """The number of rows to delete at once, adapted to take about 0.2 seconds."""

    SMALLEST, LARGEST = 500, 20_000
    SECONDS = 0.2

    def __init__(self) -> None:
        self.size = 2_000

    def took(self, seconds: float) -> None:
        """Adapt the size to the duration of the last full batch, by a factor of at most two."""
        factor = min(2.0, max(0.5, self.SECONDS / max(seconds, 0.001)))
        self.size = min(self.LARGEST, max(self.SMALLEST, int(self.size * factor)))


class Pruner:
    def __init__(self, db: Database, settings: LeaderSettings | None = None) -> None:
        self._db = db
        self._settings = settings or LeaderSettings()
        self._batch = BatchSize()
        self._next_count = 0.0

    def duties(self) -> list[Duty]:
        return [
            Duty("prune", self._settings.prune_seconds, self.prune),
            Duty("fold", FOLD_SECONDS, self.fold),
            Duty("tidy", TIDY_SECONDS, self.tidy),
        ]

    async def prune(self) -> int:
        """Delete finished tasks that are old enough. Return how many.

        Deletes batches until none is left, so that it keeps up with any rate of finished tasks. After
        each batch it pauses for as long as the batch took.
        """
        older = timedelta(days=self._settings.keep_tasks_days)
        total = 0
        while True:
            wanted, began = self._batch.size, time.monotonic()
            done = await self._db.tasks.prune(older, wanted)
            total += done
            if done < wanted:
                return total
            seconds = time.monotonic() - began
            self._batch.took(seconds)
            await asyncio.sleep(seconds)

    async def fold(self) -> None:
        """Add the counts since the last call to the totals."""
        await self._db.call("fold_tallies")
        await self._db.call("fold_errors")
        await self._db.call("fold_counters")
        await self._db.call("fold_stats")
        await self.count_queues()

    async def count_queues(self) -> None:
        """Count long queues for /metrics. Counting takes at most a twentieth of the time."""
        began = time.monotonic()
        if began >= self._next_count:
            await self._db.call("count_queues", COUNTED)
            self._next_count = time.monotonic() + 20 * (time.monotonic() - began)

    async def tidy(self) -> None:
        """Delete old lanes, events, statistics and slots."""
        older = timedelta(days=self._settings.keep_events_days)
        await self._db.tasks.tidy(older)
        await self._db.health.tidy_health(older)
