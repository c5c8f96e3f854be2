"""One open database: a pool, four ways to run SQL, and the families of functions as properties."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from shiftboss.db.connection import (
    Connection,
    Row,
    again,
    connect,
    connection_options,
    is_pooled,
    odd_settings,
    settle,
    translated,
)
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.hosts import answered, conninfo
from shiftboss.db.migrate import is_current, is_current_on, migrate
from shiftboss.db.watch import Watch
from shiftboss.extension import load, named
from shiftboss.model import codec
from shiftboss.model.errors import DatabaseUnavailable, EmbeddedServerError, MigrationError
from shiftboss.model.settings import Settings

if TYPE_CHECKING:
    from shiftboss.db.alerts import Alerts
    from shiftboss.db.autoscale import Autoscale
    from shiftboss.db.events import Events
    from shiftboss.db.fairness import Fairness
    from shiftboss.db.health import Health
    from shiftboss.db.identity import Installation
    from shiftboss.db.insights import Insights
    from shiftboss.db.lease import Lease
    from shiftboss.db.leases import Leases
    from shiftboss.db.logs import Logs
    from shiftboss.db.schedules import Schedules
    from shiftboss.db.schemas import Schemas
    from shiftboss.db.steps import Steps
    from shiftboss.db.tasks import Tasks
    from shiftboss.db.tokens import Tokens
    from shiftboss.db.tracking import Tracking
    from shiftboss.db.workers import Workers

__all__ = ["Connection", "Database", "Params", "Row"]

Params = Sequence[Any] | Mapping[str, Any]
F = TypeVar("F")

# Imported on first use: a worker or a command needs a few of them.
FAMILIES = {
    "alerts": "shiftboss.db.alerts:Alerts",
    "autoscale": "shiftboss.db.autoscale:Autoscale",
    "events": "shiftboss.db.events:Events",
    "fairness": "shiftboss.db.fairness:Fairness",
    "health": "shiftboss.db.health:Health",
    "insights": "shiftboss.db.insights:Insights",
    "installation": "shiftboss.db.identity:Installation",
    "leases": "shiftboss.db.leases:Leases",
    "logs": "shiftboss.db.logs:Logs",
    "schedules": "shiftboss.db.schedules:Schedules",
    "schemas": "shiftboss.db.schemas:Schemas",
    "steps": "shiftboss.db.steps:Steps",
    "tasks": "shiftboss.db.tasks:Tasks",
    "tokens": "shiftboss.db.tokens:Tokens",
    "tracking": "shiftboss.db.tracking:Tracking",
    "workers": "shiftboss.db.workers:Workers",
}


class Database:
    """An open pool. Use `await Database.open()` and `close()`, or `async with await Database.open()`.

    A family of SQL functions is one class in its own module: the core's are attributes, and those of
    extensions are `db.family(Runs)`, or `db.runs` by the name that the extension gave it.
    """

    alerts: Alerts
    autoscale: Autoscale
    events: Events
    fairness: Fairness
    health: Health
    insights: Insights
    installation: Installation
    leases: Leases
    logs: Logs
    schedules: Schedules
    schemas: Schemas
    steps: Steps
    tasks: Tasks
    tokens: Tokens
    tracking: Tracking
    workers: Workers

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
        self._families: dict[Any, Any] = {}
        self.pooled = False
        self._watch = Watch(url, False, self._renew)
        self._in_each_transaction: str | None = None
        self._closers: list[Callable[[], Awaitable[None]]] = []

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
        codec.use(settings)
        chosen = settings.database
        max_size = max(min_size, max_size or chosen.pool_size)
        pooled = chosen.pooled or chosen.direct_url is not None
        if url is not None:
            return await cls._open(url, None, min_size, max_size, pooled)
        if settings.database.url is not None:
            database = await cls._open(settings.database.url, None, min_size, max_size, pooled, True)
            database._direct_url = chosen.direct_url or database.url
            return database
        server = EmbeddedServer(data_dir or settings.data_dir, linger=chosen.linger_seconds)
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
        cls,
        url: str,
        server: EmbeddedServer | None,
        min_size: int,
        max_size: int,
        pooled: bool = False,
        check: bool = False,
    ) -> Self:
        # A plain connection first: its error tells what is wrong, the pool's only that time is up.
        async with connect(url, pooled) as first:
            if check:
                await _require_current_on(first)
            pooled = pooled or await is_pooled(first)
            in_each = await odd_settings(first) if pooled else None
        pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            lambda: conninfo(url),
            connection_class=psycopg.AsyncConnection[Row],
            kwargs=connection_options(pooled),
            configure=partial(_configure, url, pooled),
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
        database = cls(url, pool, server)
        database.pooled, database._in_each_transaction = pooled, in_each
        database._watch = Watch(url, pooled, database._renew)
        return database

    def under(self, lease: Lease) -> Database:
        """This database, but a statement has an effect only while `lease` is held."""
        from shiftboss.db.fenced import FencedDatabase

        return FencedDatabase(self, lease)

    def family(self, kind: Callable[[Database], F]) -> F:
        """The one instance of an extension's family of functions on this database."""
        if kind not in self._families:
            self._families[kind] = kind(self)
        family: F = self._families[kind]
        return family

    if not TYPE_CHECKING:  # a type checker should still find misspelt attributes

        def __getattr__(self, name: str) -> Any:
            target = None if name.startswith("_") else FAMILIES.get(name) or named("families").get(name)
            if target is None:
                raise AttributeError(f"a Database has no {name!r}")
            value = vars(self)[name] = self.family(load(target))
            return value

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Close this, which works on the database, before the database itself."""
        self._closers.append(closer)

    async def close(self) -> None:
        """Give back all connections, and the embedded server if this was one of its users."""
        while self._closers:
            await self._closers.pop()()
        self._watch.close()
        await self._pool.close()
        await self._give_up_spare()
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
        """All rows of one statement, each as a dict. Tried again if it met another transaction crosswise."""
        return await again(lambda: self._fetch(sql, params))

    async def _fetch(self, sql: str, params: Params | None) -> list[Row]:
        async with self.connection() as conn:
            return await (await conn.execute(sql, params)).fetchall()

    async def fetch_one(self, sql: str, params: Params | None = None) -> Row | None:
        """The first row of one statement, or None. Tried again as `fetch` is."""
        rows = await self.fetch(sql, params)
        return rows[0] if rows else None

    async def execute(self, sql: str, params: Params | None = None) -> int:
        """Run one statement; the number of rows it touched. Tried again as `fetch` is."""
        return await again(lambda: self._execute(sql, params))

    async def _execute(self, sql: str, params: Params | None) -> int:
        async with self.connection() as conn:
            return (await conn.execute(sql, params)).rowcount

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside one transaction: committed at the end, rolled back by an exception."""
        async with self.connection() as conn:
            if self._in_each_transaction is not None:  # it is in one already
                yield conn
                return
            async with conn.transaction():
                yield conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection from the pool in autocommit mode, for one statement; errors leave as ours."""
        with translated():
            conn, self._spare = self._spare, None
            if conn is None:
                conn = await self._wait_for_connection()
            self._watch.begin(conn)
            try:
                async with self._settled(conn):
                    yield conn
            finally:
                self._watch.end(conn)
                await self._put_back(conn)

    @asynccontextmanager
    async def _settled(self, conn: Connection) -> AsyncIterator[None]:
        """Behind a pooler whose sessions have other settings than ours, a transaction that has ours."""
        if self._in_each_transaction is None:
            yield
            return
        async with conn.transaction():
            await conn.execute(self._in_each_transaction)
            yield

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

    async def _give_up_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await self._pool.putconn(spare)

    async def _renew(self) -> None:
        """Replace all connections: those that are open lead to a server that does not answer."""
        await self._pool.drain()
        await self._give_up_spare()

    def dedicated(self) -> AbstractAsyncContextManager[Connection]:
        """A connection of its own outside the pool, for LISTEN and for what takes long."""
        return connect(self._direct_url)


async def _configure(url: str, pooled: bool, conn: Connection) -> None:
    answered(url, conn)
    await settle(conn, pooled)


def _revival(server: EmbeddedServer | None) -> Callable[[AsyncConnectionPool[Connection]], Any]:
    """What the pool does when it got no connection: try on, and start a killed embedded server again."""

    async def revive(pool: AsyncConnectionPool[Connection]) -> None:
        if server is not None:
            with suppress(EmbeddedServerError):  # say on a full disk: the next try tells
                await asyncio.to_thread(server.revive)
        # Having given up, the pool grows again only when asked: ask on behalf of those who wait already.
        with suppress(psycopg.OperationalError):
            await pool.putconn(await pool.getconn(timeout=10))

    return revive


async def require_current(url: str) -> None:
    """Refuse a database without Shiftboss's schema, or with the one of another version."""
    async with connect(url) as conn:
        await _require_current_on(conn)


async def _require_current_on(conn: Connection) -> None:
    if await is_current_on(conn):
        return
    found = await conn.execute("SELECT to_regclass('shiftboss.migrations') IS NULL AS empty")
    empty = (await found.fetchone() or {}).get("empty")
    raise MigrationError(
        "the database has no Shiftboss schema yet"
        if empty
        else "the database's schema is not the one of this version",
        hint="run `shiftboss db migrate`",
    )
