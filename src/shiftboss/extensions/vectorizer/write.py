"""Writes vectors and removes the rows from the queue in one short transaction."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from shiftboss.db import Database
from shiftboss.extensions.vectorizer.batch import EmbeddedRows, Failed
from shiftboss.extensions.vectorizer.model import VectorizerSpec
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.lifecycle import Backoff
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable

log = get_logger(__name__)
TRANSIENT = ("25", "55")  # SQLSTATE classes: a read-only server, a lock that is not available
ATTEMPTS = 8  # about half a minute with backoff, enough for a restart of the database


class Written(NamedTuple):
    """The number of rows and chunks written, without rows that have changed since and are embedded again."""

    rows: int
    chunks: int
    failed: list[Failed]

    def __add__(self, other: tuple[object, ...]) -> Written:
        assert isinstance(other, Written)
        return Written(self.rows + other.rows, self.chunks + other.chunks, self.failed + other.failed)


class Write:
    def __init__(self, db: Database, vectorizer: VectorizerSpec) -> None:
        self._db = db
        self._id = vectorizer.id

    async def batch(self, made: EmbeddedRows) -> Written:
        """Write a batch. If PostgreSQL rejects it, halve it until the bad row is found."""
        try:
            done = set(await self._with_retries(made))
        except DatabaseError as error:
            if isinstance(error, DatabaseUnavailable) or (error.sqlstate or "").startswith(TRANSIENT):
                raise
            if len(made.rows) == 1:
                return Written(0, 0, [Failed(made.rows[0].row, "write", str(error))])
            one, two = made.halves()
            return await self.batch(one) + await self.batch(two)
        chunks = sum(len(each.chunks) for each in made.rows if each.row.ticket in done)
        return Written(len(done), chunks, [])

    async def _with_retries(self, made: EmbeddedRows) -> list[int]:
        """Write, and retry while the database restarts: embedding again would cost more."""
        backoff = Backoff(maximum=8.0)
        while True:
            try:
                rows = [each.row for each in made.rows]
                return await self._db.family(Vectorizers).write(
                    self._id, rows, [each.chunks for each in made.rows], made.vectors
                )
            except DatabaseUnavailable as error:
                if backoff.failures >= ATTEMPTS:
                    raise
                log.warning("cannot write vectors, retrying", error=str(error))
                await asyncio.sleep(backoff.next())
