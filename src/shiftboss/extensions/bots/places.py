"""The places directory: one method per SQL function of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shiftboss.db.connection import Row

if TYPE_CHECKING:
    from shiftboss.db.database import Database


class Places:
    """Everything that can be asked of `places`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def sight_places(
        self, city: str, sightings: Sequence[dict[str, Any]], present: Sequence[str]
    ) -> dict[str, int]:
        """Insert or update what a source shows; `present` are all source ids of the same extract."""
        rows = await self._db.fetch(
            "SELECT * FROM shiftboss.sight_places(%s, %s, %s)", [city, Jsonb(list(sightings)), list(present)]
        )
        return {row["outcome"]: row["count"] for row in rows}

    async def classify_place(self, id: UUID, category: str | None, confidence: float) -> None:
        await self._db.execute(
            "SELECT shiftboss.classify_place(%s, %s, %s::real)", [id, category, confidence]
        )

    async def check_place(self, id: UUID, status: str, checks: dict[str, Any]) -> str | None:
        """Store the outcome of the checks; the status before, None if the place is gone."""
        row = await self._db.fetch_one(
            "SELECT shiftboss.check_place(%s, %s, %s) AS was", [id, status, checks]
        )
        return row["was"] if row else None

    async def list_places(
        self,
        *,
        city: str | None = None,
        category: str | None = None,
        status: str | None = None,
        after: UUID | None = None,
        checked_before: datetime | None = None,
        unclassified: bool = False,
        limit: int = 100,
    ) -> list[Row]:
        """By id, from `after` on."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.list_places(%s, %s, %s, %s, %s, %s, %s)",
            [city, category, status, after, checked_before, unclassified, limit],
        )

    async def count_places(
        self,
        *,
        city: str | None = None,
        category: str | None = None,
        status: str | None = None,
        checked_before: datetime | None = None,
        unclassified: bool = False,
    ) -> int:
        row = await self._db.fetch_one(
            "SELECT shiftboss.count_places(%s, %s, %s, %s, %s) AS n",
            [city, category, status, checked_before, unclassified],
        )
        return row["n"] if row else 0
