"""The feeder: turns changed rows into tasks of the fleet. Any number may run; no task is doubled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from shiftboss.db.listen import listen
from shiftboss.db.vectorizers import CHANNEL
from shiftboss.lifecycle import Service, sleep
from shiftboss.model.errors import DatabaseError

if TYPE_CHECKING:
    from shiftboss.db import Database

log = structlog.get_logger()


class Feeder(Service):
    """Looks when a table has changed, and every `poll` seconds for what no notification told of."""

    def __init__(self, db: Database, *, poll: float = 5.0, listen_url: str | None = None) -> None:
        super().__init__()
        self._db = db
        self._poll = poll
        self._listen_url = listen_url or db.url
        self._wake = asyncio.Event()

    async def run(self) -> None:
        ear = asyncio.create_task(self._hear(), name="feeder ear")
        self.ready()
        try:
            while not self.stopping.is_set():
                self._wake.clear()
                try:
                    await self._db.vectorizers.enqueue()
                except DatabaseError as error:
                    log.warning("could not feed the fleet with vectorizer work", reason=error.message)
                await sleep(self._poll, self._wake, self.stopping)
        finally:
            ear.cancel()
            with suppress(asyncio.CancelledError):
                await ear

    async def _hear(self) -> None:
        async for _ in listen(self._listen_url, [CHANNEL]):
            self._wake.set()
