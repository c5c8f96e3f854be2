"""Notes in the database: one method per SQL function."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shiftboss.db import Database, Row


class Notes:
    """`db.notes`, or `db.family(Notes)` for a type checker."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def add(self, body: str) -> int:
        """Store a note and enqueue the count of its words, in one transaction; the note's id."""
        row = await self._db.fetch_one("SELECT notes.add(%s) AS id", [body])
        assert row is not None
        return int(row["id"])

    async def count(self, id: int) -> int:
        row = await self._db.fetch_one("SELECT notes.count_words(%s) AS words", [id])
        assert row is not None
        return int(row["words"])

    async def all(self) -> list[Row]:
        return await self._db.fetch("SELECT id, body, words FROM notes.notes ORDER BY id")
