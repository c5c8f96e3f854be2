"""Cron schedules. The leader computes their ticks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Rollback
from psycopg.types.json import Jsonb

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.model.codec import current


class Schedules(Family):
    async def put(
        self, name: str, cron: str, timezone: str, task: dict[str, Any], missed: str, next_tick: datetime
    ) -> bool:
        """Create or replace a schedule, and return whether it is new.

        The next tick is kept if the cron expression and the time zone do not change.
        """
        row = await self._db.fetch_one(
            "INSERT INTO shiftboss.schedules AS s (name, cron, timezone, task, missed, next_tick)"
            " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (name) DO UPDATE SET cron = excluded.cron,"
            " timezone = excluded.timezone, task = excluded.task, missed = excluded.missed,"
            " next_tick = CASE WHEN s.cron = excluded.cron AND s.timezone = excluded.timezone"
            " THEN s.next_tick ELSE excluded.next_tick END RETURNING xmax = 0 AS made",
            [name, cron, timezone, Jsonb(_sealed(task)), missed, next_tick],
        )
        await self._db.execute("SELECT pg_notify('shiftboss_schedules', %s)", [name])
        return bool(row and row["made"])

    async def rehearse(self, task: dict[str, Any]) -> None:
        """Enqueue the task and roll back, to report now what would fail at each tick."""
        async with self._db.transaction() as conn:
            await conn.execute("SELECT * FROM shiftboss.enqueue(%s)", [Jsonb([_sealed(task)])])
            raise Rollback

    async def remove(self, name: str) -> bool:
        return await self._db.execute("DELETE FROM shiftboss.schedules WHERE name = %s", [name]) > 0

    async def set_paused(self, name: str, paused: bool, next_tick: datetime) -> bool:
        """Pause or resume a schedule, and return whether it exists. Ticks missed while paused do not fire."""
        changed = await self._db.execute(
            "UPDATE shiftboss.schedules SET paused = %s, next_tick = %s WHERE name = %s",
            [paused, next_tick, name],
        )
        await self._db.execute("SELECT pg_notify('shiftboss_schedules', %s)", [name])
        return changed > 0

    async def get(self, name: str) -> Row | None:
        return await self._db.fetch_one("SELECT * FROM shiftboss.schedules WHERE name = %s", [name])

    async def all(self) -> list[Row]:
        return await self._db.fetch("SELECT * FROM shiftboss.schedules ORDER BY name")

    async def due(self, limit: int = 100) -> list[Row]:
        """Return the schedules whose next tick is due, with the database's time."""
        return await self._db.fetch(
            "SELECT name, cron, timezone, missed, next_tick, shiftboss.now() AS now FROM shiftboss.schedules"
            " WHERE NOT paused AND next_tick <= shiftboss.now() ORDER BY next_tick LIMIT %s",
            [limit],
        )

    async def fire(
        self, name: str, seen: datetime, ticks: Sequence[datetime], next_tick: datetime
    ) -> list[UUID]:
        """Enqueue the task for each tick and return the new tasks. Concurrent calls enqueue them once."""
        return await self._db.call_value(list[UUID], "fire", name, seen, list(ticks), next_tick)

    async def run(self, name: str) -> UUID | None:
        """Enqueue the schedule's task now, regardless of its ticks. Returns None for an unknown schedule."""
        row = await self._db.fetch_one("SELECT shiftboss.run_schedule(%s) AS id", [name])
        return row["id"] if row else None


def _sealed(task: dict[str, Any]) -> dict[str, Any]:
    sealed = dict(task)
    if task.get("params") is not None:
        sealed["params"] = current().value(task["params"])
    if task.get("dedup_key") is not None:
        sealed["dedup_key"] = current().dedup_key(task["dedup_key"])
    return sealed
