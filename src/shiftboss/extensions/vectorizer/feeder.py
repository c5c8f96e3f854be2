"""Enqueues tasks for vectorizers with changed rows. Several feeders can run: tasks are deduplicated."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from shiftboss.db import Database
from shiftboss.db.listen import listen
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.store import CHANNEL, Vectorizers
from shiftboss.lifecycle import Service, sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError
from shiftboss.model.settings import Settings

log = get_logger(__name__)


class Feeder(Service):
    """Enqueues tasks on every notification of a change, and every `poll` seconds."""

    def __init__(self, db: Database, *, poll: float = 5.0, listen_url: str | None = None) -> None:
        super().__init__()
        self._db = db
        self._poll = poll
        self._listen_url = listen_url or db.url
        self._wake = asyncio.Event()

    async def run(self) -> None:
        listener = asyncio.create_task(self._listen(), name="feeder listener")
        self.ready()
        try:
            while not self.stopping.is_set():
                self._wake.clear()
                try:
                    await self._db.family(Vectorizers).enqueue()
                except DatabaseError as error:
                    log.warning("cannot enqueue vectorizer tasks", reason=error.message)
                await sleep(self._poll, self._wake, self.stopping)
        finally:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    async def _listen(self) -> None:
        async for _ in listen(self._listen_url, [CHANNEL]):
            self._wake.set()


def companion(db: Database, settings: Settings) -> Feeder:
    """Return a feeder with the settings of this process."""
    poll = VectorizerSettings.of(settings).poll
    return Feeder(db, poll=poll, listen_url=settings.database.direct_url)
