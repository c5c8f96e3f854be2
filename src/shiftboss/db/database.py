"""One open database: a pool, four ways to run SQL, and the families of functions as properties."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from shiftboss.db.ai import AIEngine
from shiftboss.db.connection import Connection, Row, connect, connection_options, translated
from shiftboss.db.embedded import EmbeddedServer, current
from shiftboss.db.events import Events
from shiftboss.db.fleet import Fleet
from shiftboss.db.health import Health
from shiftboss.db.insights import Insights
from shiftboss.db.journal import Journal
from shiftboss.db.migrate import is_current, migrate
from shiftboss.db.places import Places
from shiftboss.db.runs import Runs
from shiftboss.db.schedules import Schedules
from shiftboss.db.tasks import Tasks
from shiftboss.db.tokens import Tokens
from shiftboss.db.tracking import Tracking
from shiftboss.db.vectorizers import Vectorizers
from shiftboss.db.workers import Workers
from shiftboss.model.errors import DatabaseUnavailable, EmbeddedServerError, MigrationError
from shiftboss.model.settings import Settings

__all__ = ["Connection", "Database", "Params", "Row"]

Params = Sequence[Any] | Mapping[str, Any]


class Database:
    """An open pool. Use `await Database.open()` and `close()`, or `async with await Database.open()`.

    A family of SQL functions is one class in its own module, attached below as a cached property.
    """

    def __init__(
        self, url: str, pool: AsyncConnectionPool[Connection], server: EmbeddedServer | None = None
    ) -> None:
        self.url = url
        self._direct_url = url
        self._pool = pool
        self._server = server
        self._spare: Connection | None = None
        self._waiting = 0
        self._renewal = 0.0

    @classmethod
    async def open(
        cls,
        url: str | None = None,
        *,
        data_dir: Path | None = None,
        min_size: int = 1,
        max_size: int | None = None,
    ) -> Self:
        """Open `url`, else the settings' database, else the embedded server, which is migrated on the way."""
        settings = Settings.load()
        chosen = settings.database
        max_size = max(min_size, max_size or chosen.pool_size)
        pooled = chosen.pooled or chosen.direct_url is not None
        # A plain connection first in every case: its error tells what is wrong, the pool's that time is up.
        if url is not None:
            async with connect(url):
                pass
            return await cls._open(url, None, min_size, max_size, pooled)
        if settings.database.url is not None:
            await _require_current(settings.database.url)
            database = await cls._open(settings.database.url, None, min_size, max_size, pooled)
            database._direct_url = chosen.direct_url or database.url
            return database
        server = EmbeddedServer(data_dir or settings.data_dir)
        url = await asyncio.to_thread(server.acquire)
        try:
            if not await is_current(url):
                await migrate(url)
            return await cls._open(url, server, min_size, max_size)
        except BaseException:
            server.release()
            raise

    @classmethod
    async def _open(
        cls, url: str, server: EmbeddedServer | None, min_size: int, max_size: int, pooled: bool = False
    ) -> Self:
        pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            lambda: current(url),
            connection_class=psycopg.AsyncConnection[Row],
            kwargs=connection_options(pooled),
            min_size=min_size,
            max_size=max_size,
            name="shiftboss",
            # After an outage be back before beats are missed: left alone, the pool waits longer every time.
            timeout=15.0,
            reconnect_timeout=5.0,
            reconnect_failed=_revival(server),
            open=False,
        )
        await pool.open()
        return cls(url, pool, server)

    @cached_property
    def tasks(self) -> Tasks:
        return Tasks(self)

    @cached_property
    def workers(self) -> Workers:
        return Workers(self)

    @cached_property
    def health(self) -> Health:
        return Health(self)

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet(self)

    @cached_property
    def schedules(self) -> Schedules:
        return Schedules(self)

    @cached_property
    def events(self) -> Events:
        return Events(self)

    @cached_property
    def tracking(self) -> Tracking:
        return Tracking(self)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self)

    @cached_property
    def places(self) -> Places:
        return Places(self)

    @cached_property
    def tokens(self) -> Tokens:
        return Tokens(self)

    @cached_property
    def insights(self) -> Insights:
        return Insights(self)

    @cached_property
    def journal(self) -> Journal:
        return Journal(self)

    @cached_property
    def vectorizers(self) -> Vectorizers:
        return Vectorizers(self)

    @property
    def closed(self) -> bool:
        return self._pool.closed

    async def close(self) -> None:
        """Give back all connections, and the embedded server if this was one of its users."""
        await self._pool.close()
        spare, self._spare = self._spare, None
        if spare is not None:
            await self._pool.putconn(spare)
        if self._server is not None:
            self._server.release()
            self._server = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def fetch(self, sql: str, params: Params | None = None) -> list[Row]:
        """All rows of one statement, each as a dict."""
        async with self.connection() as conn:
            return await (await conn.execute(sql, params)).fetchall()

    async def fetch_one(self, sql: str, params: Params | None = None) -> Row | None:
        """The first row of one statement, or None."""
        async with self.connection() as conn:
            return await (await conn.execute(sql, params)).fetchone()

    async def execute(self, sql: str, params: Params | None = None) -> int:
        """Run one statement; the number of rows it touched."""
        async with self.connection() as conn:
            return (await conn.execute(sql, params)).rowcount

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside one transaction: committed at the end, rolled back by an exception."""
        async with self.connection() as conn, conn.transaction():
            yield conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A pooled connection in autocommit mode; errors leave as ours."""
        with translated():
            conn, self._spare = self._spare, None
            if conn is None:
                conn = await self._wait_for_connection()
            try:
                yield conn
            finally:
                await self._put_back(conn)

    async def _wait_for_connection(self) -> Connection:
        self._waiting += 1
        try:
            return await self._pool.getconn()
        except PoolTimeout as error:
            raise DatabaseUnavailable(
                "no database connection became free in time",
                hint="is PostgreSQL up? `shiftboss db status`",
            ) from error
        finally:
            self._waiting -= 1

    async def _put_back(self, conn: Connection) -> None:
        """Keep one at hand that nobody waits for, as the pool's way out and in costs a tenth of an enqueue.

        Now and then it goes back all the same, for the pool to renew what is old.
        """
        idle = conn.pgconn.transaction_status == TransactionStatus.IDLE
        if idle and self._spare is None and not self._waiting and not self.closed:
            now = time.monotonic()
            if now < self._renewal:
                self._spare = conn
                return
            self._renewal = now + 60.0
        await self._pool.putconn(conn)

    @cached_property
    def ai(self) -> AIEngine:
        return AIEngine(self)

    def dedicated(self) -> AbstractAsyncContextManager[Connection]:
        """A connection of its own outside the pool, for LISTEN and advisory locks."""
        return connect(self._direct_url)


def _revival(server: EmbeddedServer | None) -> Callable[[AsyncConnectionPool[Connection]], Any] | None:
    """What the pool does when it got no connection: a killed embedded server is started again."""
    if server is None:
        return None

    async def revive(pool: AsyncConnectionPool[Connection]) -> None:
        with suppress(EmbeddedServerError):  # say on a full disk: the next try tells
            await asyncio.to_thread(server.revive)
        # Having given up, the pool grows again only when asked: ask on behalf of those who wait already.
        with suppress(psycopg.OperationalError):
            await pool.putconn(await pool.getconn(timeout=10))

    return revive


async def _require_current(url: str) -> None:
    if not await is_current(url):
        raise MigrationError(
            "the database's schema is not the one of this version", hint="run `shiftboss db migrate`"
        )
