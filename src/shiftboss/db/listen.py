"""LISTEN on a connection of its own: notifications as an async iterator that survives a lost connection.

The connection is read in a thread of its own. PostgreSQL sends notifications inside a transaction: a session
whose client does not read gets stuck there as soon as the socket is full, and its snapshot keeps old rows
alive. So nobody's blocked event loop may be what reads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from shiftboss.db.connection import connect, is_pooled
from shiftboss.model.errors import DatabaseError

MOST_WAITING = 10_000


class Notice(NamedTuple):
    """A notification; MISSED (channel "") says that some may have been lost: look yourself."""

    channel: str
    payload: str


MISSED = Notice("", "")
POLL = 1.0
QUIET = 20.0
ANSWER = 5.0


async def listen(
    url: str, channels: Sequence[str], retry: float = 0.5, retry_max: float = 15.0
) -> AsyncIterator[Notice]:
    """Notices from now on, without an end. The first, and one after each reconnect, is MISSED.

    A transaction pooler delivers no notifications: there MISSED comes every `POLL` seconds instead.
    A notice that comes again before it was taken is given once.
    """
    mailbox = _Mailbox(asyncio.get_running_loop())
    reader = _Reader(lambda: _read(url, channels, retry, retry_max, mailbox.put))
    try:
        while True:
            for notice in await mailbox.take():
                yield notice
    finally:
        reader.stop()


class _Mailbox:
    """Notices on their way from the thread to the loop; bounded, for the loop may be blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: dict[Notice, None] = {}
        self._filled = asyncio.Event()

    def put(self, notice: Notice) -> None:
        with self._lock:
            first = not self._waiting
            if len(self._waiting) >= MOST_WAITING:
                self._waiting = {MISSED: None}
            self._waiting[notice] = None
        if first:
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[Notice]:
        await self._filled.wait()
        with self._lock:
            self._filled.clear()
            notices, self._waiting = list(self._waiting), {}
        return notices


class _Reader(threading.Thread):
    """Runs `work` on an event loop of its own until stopped."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        super().__init__(name="listen", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(work())
        self.start()

    def run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    def stop(self) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._task.cancel)


async def _read(
    url: str, channels: Sequence[str], retry: float, retry_max: float, put: Callable[[Notice], None]
) -> None:
    delay = retry
    while True:
        try:
            async with connect(url) as conn:
                while await is_pooled(conn):
                    delay = retry
                    put(MISSED)
                    await asyncio.sleep(POLL)
                for channel in channels:
                    await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                delay = retry
                put(MISSED)
                while True:
                    async for notify in conn.notifies(timeout=QUIET):
                        put(Notice(notify.channel, notify.payload))
                    async with asyncio.timeout(ANSWER):  # a frozen server would never answer
                        await conn.execute("SELECT 1")
        except (psycopg.Error, DatabaseError, OSError):
            await asyncio.sleep(delay)
            delay = min(delay * 2, retry_max)
