"""A named lock that its holder loses by dying: an advisory lock of a transaction on a connection of its own.

Of a transaction and not of a session: behind a transaction pooler a session's lock stays with the server's
connection, and whoever gets that next would hold the lock as well. An open transaction keeps the connection
to itself; as it writes nothing and has no snapshot between its statements, it keeps no old rows alive.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from psycopg.sql import SQL

from shiftboss.db.connection import Connection, connect, translated
from shiftboss.model.errors import DatabaseError

TRY = SQL("SELECT pg_try_advisory_xact_lock(hashtextextended({}, 0)) AS got")


class NamedLock:
    """At most one process holds it."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self.name = url, name
        self._stack = AsyncExitStack()
        self._conn: Connection | None = None

    async def acquire(self) -> bool:
        """Try once; False if somebody else has it. Raises if the database is away."""
        await self.release()
        try:
            conn = await self._stack.enter_async_context(connect(self._url))
            with translated():
                # A holder whose host vanished is noticed by the server within seconds, not hours. Local, and
                # nothing is prepared: a pooler gives this connection to others later.
                await conn.execute(
                    "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0;"
                    " SET LOCAL tcp_keepalives_idle = 5; SET LOCAL tcp_keepalives_interval = 2;"
                    " SET LOCAL tcp_keepalives_count = 3"
                )
                # Without parameters: those would leave a portal open, and with it a snapshot.
                row = await (await conn.execute(TRY.format(self.name))).fetchone()
        except BaseException:
            await self.release()
            raise
        if row is None or not row["got"]:
            await self.release()
            return False
        self._conn = conn
        return True

    async def held(self) -> bool:
        """Ask the server: the transaction that has the lock still lives."""
        if self._conn is None:
            return False
        try:
            with translated():
                await self._conn.execute("SELECT 1", prepare=False)
        except DatabaseError:
            await self.release()
            return False
        return True

    async def release(self) -> None:
        self._conn = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
