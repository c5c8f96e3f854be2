"""LISTEN as an async iterator that survives lost connections.

A separate thread reads the connection, so that a blocked event loop cannot stop it. PostgreSQL sends
notifications inside a transaction: if the client stops reading and the socket fills up, the session hangs
there, and its snapshot keeps VACUUM from removing dead rows.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from shiftboss.db.connection import Connection, connect, is_pooled
from shiftboss.model.errors import DatabaseError

MOST_WAITING = 10_000


class Notice(NamedTuple):
    """A notification. MISSED (channel "") means that some may have been lost, so the receiver must poll."""

    channel: str
    payload: str


MISSED = Notice("", "")
POLL = 1.0
QUIET = 20.0
ANSWER = 5.0
RETRY, RETRY_MAX = 0.5, 15.0


Statement = tuple[LiteralString, list[Any]]
Answer = Callable[[Notice], Statement | None]


def _no_answer(notice: Notice) -> Statement | None:
    return None


async def listen(url: str, channels: Sequence[str], answer: Answer = _no_answer) -> AsyncIterator[Notice]:
    """Yield notices without end. The first one, and one after each reconnect, is MISSED.

    A transaction pooler delivers no notifications: behind one, MISSED is yielded every `POLL` seconds.
    Duplicates of a notice that was not taken yet are dropped. `answer` is called for each notice in the
    reading thread, and the statement that it returns is executed there at once.
    """
    mailbox = _Mailbox(asyncio.get_running_loop())
    reader = _Reader(lambda: _read(url, channels, mailbox.put, answer))
    try:
        while True:
            for notice in await mailbox.take():
                yield notice
    finally:
        reader.stop()


class _Mailbox:
    """Passes notices from the thread to the event loop. Bounded, because the loop may be blocked."""

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
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._filled.set)

    async def take(self) -> list[Notice]:
        await self._filled.wait()
        with self._lock:
            self._filled.clear()
            notices, self._waiting = list(self._waiting), {}
        return notices


class _Reader(threading.Thread):
    """Runs `work` on a separate event loop until stopped."""

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
        with suppress(RuntimeError):  # the thread has ended
            self._loop.call_soon_threadsafe(self._task.cancel)


async def _read(url: str, channels: Sequence[str], put: Callable[[Notice], None], answer: Answer) -> None:
    delay = RETRY
    while True:
        try:
            async with connect(url) as conn:
                while await is_pooled(conn):
                    delay = RETRY
                    put(MISSED)
                    await asyncio.sleep(POLL)
                for channel in channels:
                    await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                delay = RETRY
                put(MISSED)
                while True:
                    statements = await _pass_on(conn, put, answer)
                    if not statements and not await _readable(conn.fileno(), QUIET):
                        statements = [("SELECT 1", [])]
                    # Notifications can arrive with a reply, so read again after each statement.
                    for statement in statements:
                        async with asyncio.timeout(ANSWER):  # a frozen server would never answer
                            with suppress(psycopg.Error):  # if the connection is lost, the next read says so
                                await conn.execute(*statement)
        except (psycopg.Error, DatabaseError, OSError):
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MAX)


async def _pass_on(conn: Connection, put: Callable[[Notice], None], answer: Answer) -> list[Statement]:
    """Pass on the notifications that have arrived. Return the statements that answer them."""
    statements = []
    async for notify in conn.notifies(timeout=0):
        notice = Notice(notify.channel, notify.payload)
        statements.append(answer(notice))
        put(notice)
    return list(filter(None, statements))


async def _readable(socket: int, seconds: float) -> bool:
    """Wait until there is something to read. The driver's own wait would wake up ten times per second."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(socket, ready.set)
    try:
        async with asyncio.timeout(seconds):
            return await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(socket)
