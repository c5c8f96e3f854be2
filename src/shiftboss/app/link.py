"""What an app holds open in one event loop: its database and its mailbox."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from shiftboss.app.mailbox import Mailbox
from shiftboss.db import Database
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.process import Post, member
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource

if TYPE_CHECKING:
    from shiftboss.app.app import App

#: Workers of one process are many: each has its own queues and leases.
_number = count(1)


class Link:
    """An open database; closed by us if we opened it."""

    def __init__(self, db: Database, *, owned: bool = True) -> None:
        settings = Settings.load()
        self.db = db
        self._owned = owned
        self._listen_url = settings.database.direct_url or db.url
        self.mailbox = Mailbox(db, self._listen_url, settings.worker.poll_seconds)

    @classmethod
    async def open(cls, url: str | None) -> Self:
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
        settings = Settings.load()
        if concurrency is not None:
            chosen = settings.worker.model_copy(update={"concurrency": concurrency})
            settings = settings.model_copy(update={"worker": chosen})
        post = Post(id=f"{socket.gethostname()}:{os.getpid()}:{app.name}:{next(_number)}", queues=queues)
        source = DatabaseSource(self.db, listen_url=self._listen_url, listening=settings.worker.listen)
        chosen_member = member(post, app.handlers, settings, uuid4())
        async with Worker(source, app.handlers, chosen_member, settings.worker, db=self.db) as worker:
            yield worker


def refuse_script_handlers(handlers: Handlers) -> None:
    """A child process can not import the script that runs; it would fail at the first task."""
    for handler in handlers:
        if handler.mode == "process" and handler.function.__module__ == "__main__":
            raise UsageError(
                f"{handler.name} can not run in a child process: it is defined in the script that runs",
                hint="move it to a module of its own and import it",
            )
