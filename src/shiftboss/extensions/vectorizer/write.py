"""Write: vectors in and queue entries out, in one short transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from shiftboss.extensions.vectorizer.batch import Embedded, Failed
from shiftboss.extensions.vectorizer.model import Vectorizer
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.lifecycle import Backoff
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable

if TYPE_CHECKING:
    from shiftboss.db import Database

log = get_logger(__name__)
PASSING = ("25", "55")  # a server that is read-only just now, a lock that was not to be had: no row's fault
TRIES = 8  # with the backoff about half a minute: a restart of the database


class Written(NamedTuple):
    """What went in; rows that changed meanwhile are in neither figure and will be done again."""

    rows: int
    chunks: int
    failed: list[Failed]

    def __add__(self, other: tuple[object, ...]) -> Written:
        assert isinstance(other, Written)
        return Written(self.rows + other.rows, self.chunks + other.chunks, self.failed + other.failed)


class Write:
    def __init__(self, db: Database, vectorizer: Vectorizer) -> None:
        self._db = db
        self._id = vectorizer.id

    async def batch(self, made: Embedded) -> Written:
        """A batch that PostgreSQL refuses is halved until the culprit stands alone."""
        try:
            done = set(await self._patiently(made))
        except DatabaseError as error:
            if isinstance(error, DatabaseUnavailable) or (error.sqlstate or "").startswith(PASSING):
                raise
            if len(made.rows) == 1:
                return Written(0, 0, [Failed(made.rows[0].row, "write", str(error))])
            one, two = made.halves()
            return await self.batch(one) + await self.batch(two)
        chunks = sum(len(each.chunks) for each in made.rows if each.row.ticket in done)
        return Written(len(done), chunks, [])

    async def _patiently(self, made: Embedded) -> list[int]:
        """Outlive a restart of the database: embedding again costs more, and writing twice is harmless."""
        backoff = Backoff(maximum=8.0)
        while True:
            try:
                rows = [each.row for each in made.rows]
                return await self._db.family(Vectorizers).write(
                    self._id, rows, [each.chunks for each in made.rows], made.vectors
                )
            except DatabaseUnavailable as error:
                if backoff.failures >= TRIES:
                    raise
                log.warning("vectors could not be written, trying again", error=str(error))
                await asyncio.sleep(backoff.next())
