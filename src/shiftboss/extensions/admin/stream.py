"""Live changes for any number of clients: one LISTEN, one query per burst, one encoding per change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from shiftboss.db.listen import MISSED, Notice, listen
from shiftboss.extension import load, named
from shiftboss.lifecycle import Service
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shiftboss.db import Database

log = get_logger(__name__)

EVENTS = "shiftboss_events"
BACKLOG = 1000
AGAIN = 0.5


class Change(NamedTuple):
    """One row that changed; `text` is the whole as one server-sent event."""

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
    """One client's queue. A client that does not keep up is cut off, so that it cannot hold memory."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Change] = asyncio.Queue(BACKLOG)
        self.lost = False

    def put(self, change: Change) -> None:
        with suppress(asyncio.QueueFull):
            self._queue.put_nowait(change)
            return
        self.lost = True

    async def next(self, timeout: float) -> Change | None:
        """The next change, or None when there was none in time."""
        try:
            return await asyncio.wait_for(self._queue.get(), timeout)
        except TimeoutError:
            return None


class Hub(Service):
    """Listens once and hands every change to all who subscribed."""

    def __init__(self, db: Database, listen_url: str | None = None) -> None:
        super().__init__()
        self._db = db
        self._url = listen_url or db.url
        self._clients: set[Subscription] = set()
        self._heard: asyncio.Queue[Notice] = asyncio.Queue()
        self._last = 0
        self._channels = {channel: load(target) for channel, target in named("changes").items()}

    @property
    def clients(self) -> int:
        return len(self._clients)

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        client = Subscription()
        self._clients.add(client)
        try:
            yield client
        finally:
            self._clients.discard(client)

    async def since(self, id: int) -> list[Change]:
        """Events that a client missed while it was away."""
        return [Change.of("event", row) for row in await self._db.events.after(id, BACKLOG)]

    async def run(self) -> None:
        latest = await self._db.events.latest(1)
        self._last = latest[0]["id"] if latest else 0
        ear = asyncio.create_task(self._listen(), name="ear")
        hand = asyncio.create_task(self._deliver(), name="hand")
        stop = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({ear, hand, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (ear, hand, stop):
                task.cancel()
            await asyncio.gather(ear, hand, stop, return_exceptions=True)

    async def _listen(self) -> None:
        async for notice in listen(self._url, [EVENTS, *self._channels]):
            self.ready()
            self._heard.put_nowait(notice)

    async def _deliver(self) -> None:
        while True:
            notices = {await self._heard.get()}
            while not self._heard.empty():
                notices.add(self._heard.get_nowait())
            try:
                async for change in self._changes(notices):
                    for client in tuple(self._clients):
                        client.put(change)
            except DatabaseError as error:
                log.warning("changes could not be told yet", reason=error.message)
                self._heard.put_nowait(MISSED)
                await asyncio.sleep(AGAIN)
            except Exception:  # one that cannot be read must not hold up those after it
                log.exception("changes could not be told")

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
