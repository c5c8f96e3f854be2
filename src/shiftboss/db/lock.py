"""A named lock that its holder loses by dying: a session's advisory lock on a connection of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack

from shiftboss.db.connection import Connection, connect, translated
from shiftboss.model.errors import DatabaseError


class NamedLock:
    """At most one process holds it. Needs a direct connection, not a transaction pooler."""

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
                # a holder whose host vanished is noticed by the server within seconds, not hours
                await conn.execute(
                    "SELECT set_config('tcp_keepalives_idle', '5', false),"
                    " set_config('tcp_keepalives_interval', '2', false),"
                    " set_config('tcp_keepalives_count', '3', false)"
                )
                row = await (
                    await conn.execute(
                        "SELECT pg_try_advisory_lock(hashtextextended(%s, 0)) AS got", [self.name]
                    )
                ).fetchone()
        except BaseException:
            await self.release()
            raise
        if row is None or not row["got"]:
            await self.release()
            return False
        self._conn = conn
        return True

    async def held(self) -> bool:
        """Ask the server: the session that has the lock still lives."""
        if self._conn is None:
            return False
        try:
            with translated():
                await self._conn.execute("SELECT 1")
        except DatabaseError:
            await self.release()
            return False
        return True

    async def release(self) -> None:
        self._conn = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
