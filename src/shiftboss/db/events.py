"""The fleet's event log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from shiftboss.db.connection import Row
from shiftboss.db.family import Family


class Events(Family):
    async def note(
        self,
        kind: str,
        *,
        worker_id: str | None = None,
        component: str | None = None,
        task_id: UUID | None = None,
        details: dict[str, Any] | None = None,
    ) -> int:
        """Append an event and return its id. Listeners of the channel `shiftboss_events` receive the id."""
        return await self._db.call_value(int, "note", kind, worker_id, component, task_id, details or {})

    async def after(self, id: int, limit: int = 100) -> list[Row]:
        """Return events newer than `id`, oldest first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.events WHERE id > %s ORDER BY id LIMIT %s", [id, limit]
        )

    async def named(self, ids: Sequence[int]) -> list[Row]:
        """Return the events with these ids, oldest first."""
        if not ids:
            return []
        return await self._db.fetch(
            "SELECT * FROM shiftboss.events WHERE id = ANY (%s) ORDER BY id", [list(ids)]
        )

    async def latest(
        self,
        limit: int = 50,
        *,
        worker_id: str | None = None,
        component: str | None = None,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Row]:
        """Return the latest matching events, newest first. `before` selects the next page."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.events WHERE (%(w)s::text IS NULL OR worker_id = %(w)s)"
            " AND (%(c)s::text IS NULL OR component = %(c)s) AND (%(k)s::text IS NULL OR kind = %(k)s)"
            " AND (%(b)s::bigint IS NULL OR id < %(b)s) ORDER BY id DESC LIMIT %(n)s",
            {"w": worker_id, "c": component, "k": kind, "b": before, "n": limit},
        )
