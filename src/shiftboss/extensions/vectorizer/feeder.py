"""The feeder: turns changed rows into tasks of the fleet. Any number may run; no task is doubled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from shiftboss.db.listen import listen
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.store import CHANNEL, Vectorizers
from shiftboss.lifecycle import Service, sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings

log = get_logger(__name__)


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
                    await self._db.family(Vectorizers).enqueue()
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


def companion(db: Database, settings: Settings) -> Feeder:
    """A feeder as the settings want it."""
    poll = VectorizerSettings.of(settings).poll
    return Feeder(db, poll=poll, listen_url=settings.database.direct_url)
