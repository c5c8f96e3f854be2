"""The SQL functions of the directory of places, one method each."""

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
    """Reads and writes the table `places`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def sight_places(
        self, city: str, sightings: Sequence[dict[str, Any]], present: Sequence[str]
    ) -> dict[str, int]:
        """Insert or update places from a source, and return the number of each outcome.

        `present` has all source ids of the same extract.
        """
        rows = await self._db.fetch(
            "SELECT * FROM shiftboss.sight_places(%s, %s, %s)", [city, Jsonb(list(sightings)), list(present)]
        )
        return {row["outcome"]: row["count"] for row in rows}

    async def classify_place(self, id: UUID, category: str | None, confidence: float) -> None:
        await self._db.execute(
            "SELECT shiftboss.classify_place(%s, %s, %s::real)", [id, category, confidence]
        )

    async def check_place(self, id: UUID, status: str, checks: dict[str, Any]) -> str | None:
        """Store the results of the checks; return the previous status, or None if the place was deleted."""
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
        """Return places in order of id, after the id `after`."""
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
