"""Workers that exit by themselves: after a number of tasks, or when no task is left."""

from __future__ import annotations

import asyncio
from typing import Any

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from shiftboss.worker.handlers import Handlers
from tests.worker.conftest import StartWorker

COUNTS = "SELECT status, count(*) AS n FROM public.tasks GROUP BY status"


def handlers() -> Handlers:
    made = Handlers()

    @made.task("work")
    async def work() -> None:
        await asyncio.sleep(0)

    return made


async def counts(db: Database) -> dict[str, Any]:
    return {row["status"]: row["n"] for row in await db.fetch(COUNTS)}


async def test_a_worker_takes_no_more_than_its_share(db: Database, start_worker: StartWorker) -> None:
    await db.tasks.enqueue([NewTask(task_type="work") for _ in range(100)])
    async with start_worker(handlers(), max_tasks=37, concurrency=5) as worker:
        await asyncio.wait_for(worker.wait(), 30)
    assert await counts(db) == {"Complete": 37, "Queued": 63}


async def test_a_worker_ends_when_its_queue_is_empty(db: Database, start_worker: StartWorker) -> None:
    await db.tasks.enqueue([NewTask(task_type="work") for _ in range(100)])
    await db.tasks.enqueue([NewTask(task_type="of another worker")])
    async with start_worker(handlers(), exit_when_empty=True, poll_seconds=0.05) as worker:
        await asyncio.wait_for(worker.wait(), 30)
    assert await counts(db) == {"Complete": 100, "Queued": 1}
