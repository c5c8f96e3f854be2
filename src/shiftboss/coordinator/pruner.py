"""The pruner: takes away history that nobody will ask for, a little at a time."""

from __future__ import annotations

from datetime import timedelta

from shiftboss.coordinator.leader import Duty
from shiftboss.db import Database
from shiftboss.model.settings import LeaderSettings

BATCH = 1000
BATCHES = 50
TIDY_EVERY = 10


class Pruner:
    def __init__(self, db: Database, settings: LeaderSettings | None = None) -> None:
        self._db = db
        self._settings = settings or LeaderSettings()

    def duties(self) -> list[Duty]:
        every = self._settings.prune_seconds
        return [Duty("prune", every, self.prune), Duty("tidy", every * TIDY_EVERY, self.tidy)]

    async def prune(self) -> int:
        """Delete finished tasks that are old enough, in small batches; how many."""
        older = timedelta(days=self._settings.keep_tasks_days)
        total = 0
        for _ in range(BATCHES):  # the rest waits for the next round: a backlog must not hog the database
            done = await self._db.tasks.prune(older, BATCH)
            total += done
            if done < BATCH:
                break
        return total

    async def tidy(self) -> None:
        """Housekeeping of lanes, events, statistics and slots that nobody remembers."""
        older = timedelta(days=self._settings.keep_events_days)
        await self._db.tasks.tidy(older)
        await self._db.health.tidy_health(older)
