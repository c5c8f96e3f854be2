"""The database and mailbox that an app keeps open in one event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from shiftboss.app.mailbox import Mailbox
from shiftboss.db import Database
from shiftboss.db.database import require_current
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.settings import Settings
from shiftboss.worker.engines import engine_of
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.process import member
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource

if TYPE_CHECKING:
    from shiftboss.app.app import App

WAKE_SECONDS = 0.5
#: Numbers the workers of this process: each needs a different name.
_number = count(1)


class AppConnection:
    """An open database with its mailbox. `close` closes the database only if it is `owned`."""

    def __init__(self, db: Database, *, owned: bool = True) -> None:
        settings = Settings.load()
        self.db = db
        self._owned = owned
        self._listen_url = settings.database.direct_url or db.url
        self.mailbox = Mailbox(db, self._listen_url, settings.worker.poll_seconds)

    @classmethod
    async def open(cls, url: str | None) -> Self:
        if url is not None:
            await require_current(url)
        return cls(await Database.open(url))

    async def close(self) -> None:
        await self.mailbox.close()
        if self._owned:
            await self.db.close()

    @asynccontextmanager
    async def worker(
        self, app: App, queues: list[str] | None, concurrency: int | None
    ) -> AsyncIterator[Worker]:
        refuse_script_handlers(app.handlers)
        await self.db.installation.own()
        await self.db.tasks.declare_limits(app.handlers.limits())
        settings = Settings.load().changed("worker", concurrency=concurrency)
        id = f"{socket.gethostname()}:{os.getpid()}:{app.name}:{next(_number)}"
        source = DatabaseSource(self.db, listen_url=self._listen_url, listening=settings.worker.listen)
        engine = engine_of(settings)
        me = member(id, queues, app.handlers, settings, uuid4(), engine.name if engine else None)
        waking = asyncio.create_task(self._wake(), name="waits")
        try:
            async with Worker(source, app.handlers, me, settings.worker, db=self.db, engine=engine) as worker:
                yield worker
        finally:
            waking.cancel()

    async def _wake(self) -> None:
        """Wake tasks whose waits are over, because a script with its own worker may have no leader."""
        while True:
            with suppress(DatabaseError):
                await self.db.steps.wake_due()
            await asyncio.sleep(WAKE_SECONDS)


def refuse_script_handlers(handlers: Handlers) -> None:
    """Reject process handlers defined in `__main__`: a child process cannot import them."""
    for handler in handlers:
        if handler.mode == "process" and handler.function.__module__ == "__main__":
            raise UsageError(
                f"{handler.name} cannot run in a child process: it is defined in the main script",
                hint="move it to a separate module and import it",
            )
