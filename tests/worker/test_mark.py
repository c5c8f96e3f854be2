"""The memory of a dead worker shows which attempts had started, not which tasks it had prefetched."""

from __future__ import annotations

import asyncio
from typing import Any

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.mark import STARTED, WORDS, Mark, started, suspects
from tests.worker.conftest import StartWorker


def test_attempts_are_listed_from_start_to_end() -> None:
    mark = Mark()
    for lease in (1, 2, 3):
        mark.start(lease)
    mark.end(2)
    assert sorted(started(bytes(mark.words))) == [1, 3]
    assert suspects(bytes(mark.words)) == []


def test_more_attempts_than_places_tell_nothing() -> None:
    mark = Mark()
    leases = range(1, WORDS - STARTED + 2)
    for lease in leases:
        mark.start(lease)
    assert started(bytes(mark.words)) == []
    mark.end(leases[-1])
    assert len(started(bytes(mark.words))) == WORDS - STARTED


async def test_a_task_that_is_claimed_ahead_has_not_started(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, go = Handlers(), asyncio.Event()

    @handlers.task("wait")
    async def wait() -> None:
        await go.wait()

    await db.tasks.enqueue([NewTask(task_type="wait") for _ in range(3)])
    async with start_worker(handlers, concurrency=1) as worker:
        worker._capacity.pace = 0.01  # as after many short tasks: it claims ahead

        async def holds_several() -> bool:
            worker._wake()
            return bool(worker._running) and bool(worker._inbox)

        await eventually(holds_several, timeout=30)
        assert started(bytes(worker._mark.words)) == list(worker._running)
        go.set()
