"""The SQL functions of the directory of places, one method each, and its iteration by runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack
from uuid import UUID

from psycopg.types.json import Jsonb

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.extensions.bots.run import Run

BATCH = 100


class PlaceFilter(TypedDict, total=False):
    """Selects places; all are optional."""

    city: str | None
    category: str | None
    status: str | None
    checked_before: datetime | None
    unclassified: bool


class PlacePage(PlaceFilter, total=False):
    """Places in order of id, after the id `after`."""

    after: UUID | None
    limit: int


class Places(Family):
    """Reads and writes the table `places`."""

    async def sight_places(
        self, city: str, sightings: Sequence[dict[str, Any]], present: Sequence[str]
    ) -> dict[str, int]:
        """Insert or update places from a source, and return the number of each outcome.

        `present` has all source ids of the same extract.
        """
        rows = await self._db.call_rows("sight_places", city, Jsonb(list(sightings)), list(present))
        return {row["outcome"]: row["count"] for row in rows}

    async def classify_place(self, id: UUID, category: str | None, confidence: float) -> None:
        await self._db.execute(
            "SELECT shiftboss.classify_place(%s, %s, %s::real)", [id, category, confidence]
        )

    async def check_place(self, id: UUID, status: str, checks: dict[str, Any]) -> None:
        """Store the results of the checks."""
        await self._db.call("check_place", id, status, checks)

    async def list_places(self, **page: Unpack[PlacePage]) -> list[Row]:
        """Return 100 places, or `limit`."""
        return await self._db.fetch(f"SELECT * FROM shiftboss.list_places({_named(page)})", page)  # noqa: S608

    async def count_places(self, **wanted: Unpack[PlaceFilter]) -> int:
        return await self._db.value(int, f"SELECT shiftboss.count_places({_named(wanted)})", wanted)


def _named(arguments: Iterable[str]) -> str:
    return ", ".join(f"p_{name} => %({name})s" for name in arguments)


async def places_from_checkpoint(
    run: Run, limit: int, **wanted: Unpack[PlaceFilter]
) -> AsyncIterator[dict[str, Any]]:
    """Yield places of the run in order of id, after its checkpoint, and report a step after each."""
    places = run.db.family(Places)
    wanted = {**wanted, "city": run.order.where["city"], "category": run.order.where["category"]}
    done = int(run.checkpoint.get("done", 0))
    total = min(limit, done + await places.count_places(**wanted))
    after = UUID(run.checkpoint["after"]) if "after" in run.checkpoint else None
    while done < total:
        batch = await places.list_places(**wanted, after=after, limit=min(BATCH, total - done))
        for place in batch:
            yield place
            done, after = done + 1, place["id"]
            run.checkpoint = {"after": str(after), "done": done}
            await run.step(done, total, place["name"])
        if not batch:
            return
