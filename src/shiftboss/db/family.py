"""The base class of the families of SQL functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shiftboss.db.database import Database


class Family:
    """A family of SQL functions, or of queries, on one database."""

    def __init__(self, db: Database) -> None:
        self._db = db
