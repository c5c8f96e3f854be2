"""A worker whose database is away for longer than its leases last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from shiftboss.worker.handlers import Handlers
from tests.conftest import outage

from .conftest import StartWorker

LEASE = 4.0


async def test_it_stops_before_its_leases_end_and_the_task_is_done_by_one_alone(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any]
) -> None:
    handlers = Handlers()
    begun: list[float] = []
    stopped: list[float] = []
    began, ended = asyncio.Event(), asyncio.Event()

    @handlers.task("long")
    async def long() -> str:
        begun.append(time.monotonic())
        began.set()
        if len(begun) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(time.monotonic())
                ended.set()
        return "done"

    async with start_worker(handlers, concurrency=1, lease_seconds=LEASE):
        [made] = await db.tasks.enqueue([NewTask(task_type="long", max_attempts=5)])
        await asyncio.wait_for(began.wait(), 20)
        async with outage(db):
            away = time.monotonic()
            await asyncio.wait_for(ended.wait(), 3 * LEASE)
            assert stopped[0] - away < LEASE, "somebody else may hold the task by now"
            await asyncio.sleep(max(0.0, away + LEASE + 1 - time.monotonic()))  # longer than the lease

        async def done() -> Any:
            await db.execute("SELECT shiftboss.rescue()")
            row = await db.tasks.get(made.id)
            return row if row is not None and row["status"] == "Complete" else None

        row = await eventually(done, timeout=30)
    assert row["result_data"] == "done"
    assert len(begun) == 2
