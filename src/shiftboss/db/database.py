"""The `Database` class: a connection pool, methods to run SQL, and the families of SQL functions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from shiftboss.db.connection import (
    Connection,
    Row,
    again,
    connect,
    is_pooled,
    kept,
    odd_settings,
    translated,
)
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import is_current_on, migrate
from shiftboss.db.pool import DatabasePool, open_pool
from shiftboss.db.watch import Watch
from shiftboss.extension import load, named
from shiftboss.model import codec
from shiftboss.model.errors import DatabaseUnavailable, MigrationError
from shiftboss.model.settings import Settings

if TYPE_CHECKING:
    from shiftboss.db.alerts import Alerts
    from shiftboss.db.autoscale import Autoscale
    from shiftboss.db.events import Events
    from shiftboss.db.fairness import Fairness
    from shiftboss.db.health import Health
    from shiftboss.db.insights import Insights
    from shiftboss.db.installation import Installation
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
R = TypeVar("R")


class Database:
    """An open database. Use `async with await Database.open()`, or `await Database.open()` and `close()`.

    Each family of SQL functions is a class in its own module. Those of the core are attributes of this
    class; those of extensions are available as `db.family(Notes)`, or by name as `db.notes`.
    """

    # The class of each is in the module of its name, which is imported on first use.
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

    def __init__(self, url: str, pool: DatabasePool, server: EmbeddedServer | None = None) -> None:
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
        """Open `url`, the database of the settings, or the embedded server, which is migrated if needed."""
        settings = Settings.load()
        codec.use(settings)
        chosen = settings.database
        pooled = chosen.pooled or chosen.direct_url is not None
        sizes = (min_size, max(min_size, max_size or chosen.pool_size))
        if url is not None:
            return await cls._open(url, None, sizes, pooled)
        if settings.database.url is not None:
            database = await cls._open(settings.database.url, None, sizes, pooled, _require_current_on)
            database._direct_url = chosen.direct_url or database.url
            return database
        server = EmbeddedServer(data_dir or settings.data_dir, linger=chosen.linger_seconds)
        url = await asyncio.to_thread(server.acquire)
        try:
            return await cls._open(url, server, sizes, check=partial(_migrated, url))
        except BaseException:
            server.release()
            raise

    @classmethod
    async def _open(
        cls,
        url: str,
        server: EmbeddedServer | None,
        sizes: tuple[int, int],
        pooled: bool = False,
        check: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> Self:
        # Connect without the pool first: the error says what is wrong, while the pool only reports a timeout.
        async with kept(url, pooled) as first:
            if check is not None:
                await check(first)
            pooled = pooled or await is_pooled(first)
            in_each = await odd_settings(first) if pooled else None
            pool = await open_pool(url, first, server, pooled, sizes)
        database = cls(url, pool, server)
        database.pooled, database._in_each_transaction = pooled, in_each
        database._watch = Watch(url, pooled, database._renew)
        return database

    def under(self, lease: Lease) -> Database:
        """Return a view of this database whose statements take effect only while `lease` is held."""
        from shiftboss.db.fenced import FencedDatabase

        return FencedDatabase(self, lease)

    def family(self, kind: Callable[[Database], F]) -> F:
        """Return the instance of an extension's family of functions for this database."""
        if kind not in self._families:
            self._families[kind] = kind(self)
        family: F = self._families[kind]
        return family

    if not TYPE_CHECKING:  # type checkers should still report misspelt attributes

        def __getattr__(self, name: str) -> Any:
            target = None if name.startswith("_") else named("families").get(name)
            if own := Database.__annotations__.get(name):
                target = f"shiftboss.db.{name}:{own}"
            if target is None:
                raise AttributeError(f"a Database has no {name!r}")
            value = vars(self)[name] = self.family(load(target))
            return value

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Register a function to call before the database is closed."""
        self._closers.append(closer)

    async def close(self) -> None:
        """Close all connections, and release the embedded server if it is used."""
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

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def fetch(self, sql: str, params: Params | None = None) -> list[Row]:
        """Run one statement and return all rows as dicts. Retried after a deadlock."""
        return await again(lambda: self._fetch(sql, params))

    async def _fetch(self, sql: str, params: Params | None) -> list[Row]:
        async with self.connection() as conn:
            return await (await conn.execute(sql, params)).fetchall()

    async def fetch_as(self, kind: type[R], sql: str, params: Params | None = None) -> list[R]:
        """Run one statement and return all rows, typed as the TypedDict `kind`."""
        return cast("list[R]", await self.fetch(sql, params))

    async def fetch_one(self, sql: str, params: Params | None = None) -> Row | None:
        """Run one statement and return its first row, or None. Retried after a deadlock."""
        rows = await self.fetch(sql, params)
        return rows[0] if rows else None

    async def value(self, kind: type[R], sql: str, params: Params | None = None) -> R:
        """Run one statement that returns a single value of this type, such as the call of a function."""
        [row] = await self.fetch(sql, params)
        [value] = row.values()
        return cast("R", value)

    async def execute(self, sql: str, params: Params | None = None) -> int:
        """Run one statement and return the number of affected rows. Retried after a deadlock."""
        return await again(lambda: self._execute(sql, params))

    async def _execute(self, sql: str, params: Params | None) -> int:
        async with self.connection() as conn:
            return (await conn.execute(sql, params)).rowcount

    async def call(self, function: str, *given: Any) -> None:
        """Call one of our SQL functions, without a result."""
        await self.execute(f"SELECT {_call(function, given)}", given)

    async def call_value(self, kind: type[R], function: str, *given: Any) -> R:
        """Call one of our SQL functions that returns a single value of this type."""
        return await self.value(kind, f"SELECT {_call(function, given)}", given)

    async def call_rows(self, function: str, *given: Any) -> list[Row]:
        """Call one of our SQL functions that returns rows."""
        return await self.fetch(f"SELECT * FROM {_call(function, given)}", given)  # noqa: S608 - our own names

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection in a transaction, committed at the end and rolled back on an exception."""
        async with self.connection() as conn:
            if self._in_each_transaction is not None:  # the connection is already in a transaction
                yield conn
                return
            async with conn.transaction():
                yield conn

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Yield a pooled connection in autocommit mode. The driver's errors are translated.

        If a pooler's sessions have other settings than ours, it is in a transaction with our settings.
        """
        with translated():
            conn, self._spare = self._spare, None
            if conn is None:
                conn = await self._wait_for_connection()
            self._watch.begin(conn)
            try:
                if self._in_each_transaction is None:
                    yield conn
                else:
                    async with conn.transaction():
                        await conn.execute(self._in_each_transaction)
                        yield conn
            finally:
                self._watch.end(conn)
                await self._put_back(conn)

    async def _wait_for_connection(self) -> Connection:
        self._waiting += 1
        try:
            return await self._pool.getconn()
        except PoolTimeout as error:
            raise DatabaseUnavailable(
                "timed out waiting for a database connection",
                hint="run `shiftboss db status` to check that PostgreSQL is up",
            ) from error
        finally:
            self._waiting -= 1

    async def _put_back(self, conn: Connection) -> None:
        """Keep one idle connection outside the pool: a round trip through it costs a tenth of an enqueue.

        Once a minute the connection goes back, so that the pool can replace old connections.
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
        """Replace all connections, because the current ones lead to an unresponsive server."""
        await self._pool.drain()
        await self._give_up_spare()

    def dedicated(self) -> AbstractAsyncContextManager[Connection]:
        """Open a connection outside the pool, for LISTEN and for long operations."""
        return connect(self._direct_url)


def _call(function: str, given: Sequence[Any]) -> str:
    return f"shiftboss.{function}({', '.join(['%s'] * len(given))})"


async def require_current(url: str) -> None:
    """Raise MigrationError unless the database has the schema of this version."""
    async with connect(url) as conn:
        await _require_current_on(conn)


async def _migrated(url: str, conn: Connection) -> None:
    if not await is_current_on(conn):
        await migrate(url)


async def _require_current_on(conn: Connection) -> None:
    if await is_current_on(conn):
        return
    found = await conn.execute("SELECT to_regclass('shiftboss.migrations') IS NULL AS empty")
    empty = (await found.fetchone() or {}).get("empty")
    raise MigrationError(
        "the database has no Shiftboss schema yet"
        if empty
        else "the database schema does not match this version of Shiftboss",
        hint="run `shiftboss db migrate`",
    )
