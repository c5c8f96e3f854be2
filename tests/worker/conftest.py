"""A running worker on a fresh database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from shiftboss.db import Database
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource

StartWorker = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture
def start_worker(db: Database) -> StartWorker:
    """`async with start_worker(handlers, concurrency=2) as worker:`"""

    @asynccontextmanager
    async def start(
        handlers: Handlers,
        name: str = "w1",
        spool_dir: Any = None,
        by: Database | None = None,
        **settings: Any,
    ) -> AsyncIterator[Worker]:
        chosen = WorkerSettings(
            **({"beat_seconds": 0.2, "poll_seconds": 0.2, "grace_seconds": 5.0} | settings)
        )
        types = [handler.name for handler in handlers]
        member = Member(
            id=name,
            capabilities=Capabilities(task_types=types),
            incarnation=uuid4(),
            lease_seconds=chosen.lease_seconds,
        )
        source = DatabaseSource(by or db)
        worker = Worker(source, handlers, member, chosen, db=by or db, spool_dir=spool_dir)
        async with worker:
            yield worker

    return start
