"""Find rows by the first characters of their IDs."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString
from uuid import UUID

if TYPE_CHECKING:
    from shiftboss.db.database import Database

SHORTEST, WHOLE = 4, 32


async def starting_with(
    db: Database, table: LiteralString, prefix: str, limit: int, column: LiteralString = "id"
) -> list[UUID] | None:
    """Return the IDs that start with these characters, or None if no ID can start with them.

    The query uses a range of the index on the column.
    """
    digits = prefix.replace("-", "").lower()
    if not SHORTEST <= len(digits) <= WHOLE or set(digits) - set("0123456789abcdef"):
        return None
    low, high = (UUID(digits.ljust(WHOLE, filler)) for filler in "0f")
    rows = await db.fetch(
        f"SELECT {column} AS id FROM {table} WHERE {column} BETWEEN %s AND %s LIMIT %s",  # noqa: S608 -- constants
        [low, high, limit],
    )
    return [row["id"] for row in rows]
