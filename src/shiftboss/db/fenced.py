"""A database whose statements take effect only while a lease is held."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from shiftboss.db.database import Database

if TYPE_CHECKING:
    from shiftboss.db.connection import Connection
    from shiftboss.db.lease import Lease

FENCE = "SELECT shiftboss.fence(%s, %s)"


class FencedDatabase(Database):
    """Shares the pool of another database. Statements of a former lease holder fail."""

    def __init__(self, db: Database, lease: Lease) -> None:
        super().__init__(db.url, db._pool)
        self._db, self._lease, self._direct_url = db, lease, db._direct_url

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a connection in a fenced transaction, which ends with the block.

        The fence also limits how long the server waits for this process: if it hangs, it loses its session.
        A pipeline would save round trips, but libpq has crashed in pipelines whose connection was cut.
        """
        async with self._db.transaction() as conn:
            await conn.execute(FENCE, self._claim())
            yield conn

    transaction = connection

    def _claim(self) -> list[Any]:
        return [self._lease.name, self._lease.token]
