"""The rescuer: finds workers that stopped beating, and returns their tasks to the queue."""

from __future__ import annotations

import time
from collections.abc import Callable

from shiftboss.db import Database
from shiftboss.leader.election import Duty
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError
from shiftboss.model.settings import LeaderSettings
from shiftboss.model.slot import SilenceWatch

log = get_logger(__name__)

BEATS_TO_WAIT = 10.0
CLOCK_JUMP = 5.0


class Rescuer:
    """Measures silence itself, so that clock jumps and database outages are not mistaken for dead workers."""

    def __init__(
        self,
        db: Database,
        settings: LeaderSettings | None = None,
        *,
        patience: float = BEATS_TO_WAIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db, self._clock = db, clock
        self._settings = settings or LeaderSettings()
        self._watch = SilenceWatch(longest_step=2 * self._settings.crash_check_seconds)
        self._patience = patience
        self._sighted: float | None = None
        self._offset: float | None = None

    def duties(self) -> list[Duty]:
        return [
            Duty("crash check", self._settings.crash_check_seconds, self.crash_check),
            Duty("rescue", self._settings.rescue_seconds, self.rescue),
        ]

    async def crash_check(self) -> list[str]:
        """Mark silent slots with a silent supervisor as crashed. Return their names."""
        try:
            rows = {row["component"]: row for row in await self._db.health.watch_list()}
        except DatabaseError:
            self._watch.blind()
            raise
        signs = {name: (row["last_seen"], row["supervisor_seen"]) for name, row in rows.items()}
        limit = self._settings.crash_timeout_seconds
        crashed = []
        for name, silence in self._watch.look(signs, self._clock()).items():
            if silence >= limit and await self._db.health.mark_crashed(
                name, f"no beat for {limit:g} s", outcome="lost", last_seen=rows[name]["last_seen"]
            ):
                log.warning("slot and supervisor are silent", component=name)
                crashed.append(name)
        return crashed

    async def rescue(self) -> int:
        """Return the tasks of lost workers to the queue. Return how many.

        After an outage or a clock jump of the database, all leases look old. Then workers first get time to
        send a beat.
        """
        now = self._clock()
        if not await self._steady(now):
            self._sighted = now
        if self._sighted is None or now - self._sighted < self._patience:
            return 0
        done = await self._db.workers.rescue()
        if done["workers_lost"]:
            log.warning("workers lost", workers=done["workers_lost"], tasks=done["tasks_rescued"])
        return int(done["tasks_rescued"])

    async def _steady(self, now: float) -> bool:
        """Whether the database's clock has advanced like ours since the last call."""
        before, self._offset = self._offset, None
        self._offset = await self._db.call_value(float, "epoch") - now
        return before is not None and abs(self._offset - before) < CLOCK_JUMP
