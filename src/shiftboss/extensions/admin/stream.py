"""Sends live changes to any number of clients, with one LISTEN and one query per burst of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import orjson

from shiftboss.db import Database
from shiftboss.db.listen import MISSED, Notice, listen
from shiftboss.extension import load, named
from shiftboss.lifecycle import Service, first_of
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError

log = get_logger(__name__)

EVENTS = "shiftboss_events"
BACKLOG = 1000
RETRY_SECONDS = 0.5


class Change(NamedTuple):
    """A changed row. `text` is its server-sent event."""

    kind: str
    data: dict[str, Any]
    text: bytes

    @classmethod
    def of(cls, kind: str, row: dict[str, Any]) -> Change:
        id = b"id: %d\n" % row["id"] if kind == "event" else b""
        return cls(
            kind, row, b"%sevent: %s\ndata: %s\n\n" % (id, kind.encode(), orjson.dumps(row, default=str))
        )


class Subscription:
    """The queue of one client. A client that does not keep up is disconnected, which bounds memory."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Change] = asyncio.Queue(BACKLOG)
        self.lost = False

    def put(self, change: Change) -> None:
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(change)
            return
        self.lost = True

    async def next(self, timeout: float) -> Change | None:
        """Return the next change, or None after the timeout."""
        try:
            return await asyncio.wait_for(self._queue.get(), timeout)
        except TimeoutError:
            return None


class Receiver(Protocol):
    def put(self, change: Change) -> None: ...


class Hub(Service):
    """Listens for changes and passes each one to all clients."""

    def __init__(self, db: Database, listen_url: str | None = None) -> None:
        super().__init__()
        self._db = db
        self._url = listen_url or db.url
        self._clients: set[Receiver] = set()
        self._notices: asyncio.Queue[Notice] = asyncio.Queue()
        self._last = 0
        self._channels = {channel: load(target) for channel, target in named("changes").items()}

    def attach(self, client: Receiver) -> None:
        """Pass all changes to a client for as long as the hub runs."""
        self._clients.add(client)

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        client = Subscription()
        self._clients.add(client)
        try:
            yield client
        finally:
            self._clients.discard(client)

    async def since(self, id: int) -> list[Change]:
        """Return the events that a client missed since this ID."""
        return [Change.of("event", row) for row in await self._db.events.after(id, BACKLOG)]

    async def run(self) -> None:
        latest = await self._db.events.latest(1)
        self._last = latest[0]["id"] if latest else 0
        await first_of(self._listen(), self._deliver(), self.stopping.wait())

    async def _listen(self) -> None:
        async for notice in listen(self._url, [EVENTS, *self._channels]):
            self.ready()
            self._notices.put_nowait(notice)

    async def _deliver(self) -> None:
        while True:
            notices = {await self._notices.get()}
            while not self._notices.empty():
                notices.add(self._notices.get_nowait())
            try:
                async for change in self._changes(notices):
                    for client in tuple(self._clients):
                        client.put(change)
            except DatabaseError as error:
                log.warning("cannot deliver changes, will retry", reason=error.message)
                self._notices.put_nowait(MISSED)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:  # an unreadable change must not block later ones
                log.exception("cannot deliver changes")

    async def _changes(self, notices: set[Notice]) -> AsyncIterator[Change]:
        ids = [int(notice.payload) for notice in notices if notice.channel == EVENTS]
        rows = (
            await self._db.events.after(self._last, BACKLOG)
            if MISSED in notices
            else await self._db.events.named(ids)
        )
        for row in rows:
            self._last = max(self._last, row["id"])
            yield Change.of("event", row)
        for channel, changed in self._channels.items():
            if payloads := [notice.payload for notice in notices if notice.channel == channel]:
                for kind, row in await changed(self._db, payloads):
                    yield Change.of(kind, row)
