"""Threads cannot be killed: a worker with too many abandoned threads exits."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from shiftboss.db import Database
from shiftboss.worker.handlers import Handlers
from tests.worker.conftest import StartWorker
from tests.worker.test_runtime import enqueue, finished


async def test_a_worker_with_too_many_abandoned_threads_finishes_and_ends(
    db: Database, start_worker: StartWorker
) -> None:
    handlers, release, go = Handlers(), threading.Event(), asyncio.Event()

    @handlers.task("stuck")
    def stuck() -> None:
        release.wait(60)

    @handlers.task("good")
    async def good() -> str:
        await go.wait()
        return "done"

    try:
        async with start_worker(handlers, max_abandoned=2) as worker:
            kept = await enqueue(db, "good")
            for _ in range(2):
                id = await enqueue(db, "stuck", timeout=timedelta(seconds=0.2), max_attempts=1)
                assert (await finished(db, id))["status"] == "Failed"
            left = await enqueue(db, "good")
            go.set()
            await asyncio.wait_for(worker.wait(), 30)
            assert (await finished(db, kept))["result_data"] == "done"
            row = await db.tasks.get(left)
            assert row is not None
            assert row["status"] == "Queued"
    finally:
        release.set()
