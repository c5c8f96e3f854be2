"""The connection pool of a database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from shiftboss.db.connection import Connection, Row, connection_options, settle
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.hosts import answered, conninfo
from shiftboss.model.errors import EmbeddedServerError


class DatabasePool(AsyncConnectionPool[Connection]):
    """A pool whose workers end when they are cancelled.

    The library's workers catch CancelledError while they connect, and then wait for more work. `asyncio.run`
    cancels every task once and waits for all of them, so a program that leaves its pool open would hang.
    """

    @classmethod
    async def worker(cls, q: Any) -> None:
        queue: Any = _UntilCancelled(q)
        await super().worker(queue)


class _UntilCancelled:
    """A worker's queue, which raises CancelledError again if the worker has caught it."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    async def get(self) -> Any:
        if _cancelled():
            raise asyncio.CancelledError
        return await self._queue.get()


def _cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # outside of an event loop
        return False
    return task is not None and task.cancelling() > 0


# A worker that is cancelled while it connects would log a warning at the end of the program.
logging.getLogger("psycopg.pool").addFilter(lambda record: not _cancelled())


async def open_pool(
    url: str, first: Connection, server: EmbeddedServer | None, pooled: bool, sizes: tuple[int, int]
) -> DatabasePool:
    """Open a pool of at least and at most `sizes` connections. The open connection `first` is one of them.

    A pool that may be empty closes it instead.
    """
    if not sizes[0]:
        await first.close()
    pool = DatabasePool(
        lambda: conninfo(url),
        connection_class=_starting_with(first) if sizes[0] else psycopg.AsyncConnection[Row],
        kwargs=connection_options(pooled),
        configure=partial(_configure, url, pooled),
        min_size=sizes[0],
        max_size=sizes[1],
        name="shiftboss",
        # Reconnect soon after an outage, before heartbeats are missed: the pool's backoff is unbounded.
        timeout=15.0,
        reconnect_timeout=5.0,
        reconnect_failed=_revival(server),
        open=False,
    )
    try:
        await pool.open(wait=True)  # the first request would open another connection otherwise
    except BaseException:
        await pool.close()
        raise
    return pool


def _starting_with(first: Connection) -> type[Connection]:
    """Return a class that returns `first` in place of its first connection: each login costs milliseconds."""
    ready = [first]

    class Connections(psycopg.AsyncConnection[Row]):
        @classmethod
        async def connect(cls, conninfo: str = "", **options: Any) -> Any:
            return ready.pop() if ready else await psycopg.AsyncConnection.connect(conninfo, **options)

    return Connections


async def _configure(url: str, pooled: bool, conn: Connection) -> None:
    answered(url, conn)
    await settle(conn, pooled)


def _revival(server: EmbeddedServer | None) -> Callable[[AsyncConnectionPool[Connection]], Any]:
    """Return the pool's handler for failed reconnects: restart a killed embedded server and keep trying."""

    async def revive(pool: AsyncConnectionPool[Connection]) -> None:
        if _cancelled():  # the program ends
            return
        if server is not None:
            with suppress(EmbeddedServerError):  # for example on a full disk; a later attempt may succeed
                await asyncio.to_thread(server.revive)
        # The pool has given up and reconnects only on request: request a connection for current waiters.
        with suppress(psycopg.OperationalError):
            await pool.putconn(await pool.getconn(timeout=10))

    return revive
