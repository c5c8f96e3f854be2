"""Detects statements on frozen or unreachable servers and ends them."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from shiftboss.db.connection import Connection
from shiftboss.db.hosts import conninfo, silent
from shiftboss.log import get_logger

log = get_logger(__name__)

#: Seconds after which the server is asked whether it still runs a statement.
PATIENCE: Final = 5.0
#: Seconds within which the server must answer.
ANSWER: Final = 5.0


class Late(NamedTuple):
    """A connection with a slow statement, and the time since which it is in use."""

    conn: Connection
    since: float
    pid: int


class Watch:
    """Ends statements on servers that do not answer. Statements that are merely slow continue."""

    def __init__(self, url: str, pooled: bool, on_dead: Callable[[], Awaitable[None]]) -> None:
        """Create a watch. `on_dead` is called after it ended statements, to replace idle connections too."""
        self._url, self._pooled, self._on_dead = url, pooled, on_dead
        self._busy: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None

    def begin(self, conn: Connection) -> None:
        self._busy[conn] = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._look)

    def end(self, conn: Connection) -> None:
        self._busy.pop(conn, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._busy:
            return
        late = self._late(time.monotonic() - PATIENCE)
        if late and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask(late), name="watch")
        self._timer = asyncio.get_running_loop().call_later(PATIENCE / 2, self._look)

    def _late(self, before: float) -> dict[tuple[str, int], list[Late]]:
        """Return the statements that began before this time, by server."""
        found = defaultdict(list)
        for conn, since in self._busy.items():
            if since <= before and conn.pgconn.transaction_status == TransactionStatus.ACTIVE:
                info = conn.info
                found[info.host, info.port].append(Late(conn, since, info.backend_pid))
        return found

    async def _ask(self, late: dict[tuple[str, int], list[Late]]) -> None:
        ended = 0
        for (host, port), some in late.items():
            known = await self._known(host, port, [one.pid for one in some])
            if not known:
                silent(self._url, host, port)
            dead = [one for one in some if one.pid not in known and self._busy.get(one.conn) == one.since]
            for one in dead:
                hang_up(one.conn)
            ended += len(dead)
        if ended:
            log.warning("the server does not answer, reconnecting", statements=ended)
            await self._on_dead()

    async def _known(self, host: str, port: int, pids: list[int]) -> set[int]:
        """Return which of the backends exist on the server, or none if it does not answer.

        Behind a proxy, another server may answer, on which none of them exist.
        """
        target = make_conninfo(conninfo(self._url), host=host, port=port, target_session_attrs="any")
        try:
            async with (
                asyncio.timeout(ANSWER),
                await psycopg.AsyncConnection.connect(
                    target, autocommit=True, prepare_threshold=None
                ) as conn,
            ):
                query = "SELECT pid FROM pg_catalog.pg_stat_activity WHERE pid = ANY (%s)"
                known = {int(row[0]) for row in await (await conn.execute(query, [pids])).fetchall()}
                return set(pids) if self._pooled else known  # a pooler's pids are not those of backends
        except (TimeoutError, psycopg.errors.ConnectionTimeout):
            return set()
        except (psycopg.Error, OSError):  # the server answers, even if it refuses the connection
            return set(pids)


def hang_up(conn: Connection) -> None:
    """Shut down the socket, so that a statement on this connection fails immediately."""
    with suppress(OSError, psycopg.OperationalError), socket.socket(fileno=os.dup(conn.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
