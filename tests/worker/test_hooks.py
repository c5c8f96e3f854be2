"""Listeners on the worker's hooks."""

from __future__ import annotations

from shiftboss.db import Database
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.hooks import Ended, Event, Joined, Left, Started
from tests.worker.conftest import StartWorker
from tests.worker.test_runtime import enqueue, finished


async def test_listeners_hear_the_life_of_a_worker_and_can_not_hurt_it(
    db: Database, start_worker: StartWorker
) -> None:
    handlers = Handlers()

    @handlers.task("t")
    async def t() -> int:
        return 1

    heard: list[type[Event]] = []
    async with start_worker(handlers) as worker:
        worker.hooks.listen(lambda event: heard.append(type(event)))
        worker.hooks.listen(lambda event: 1 / 0)
        assert (await finished(db, await enqueue(db, "t")))["result_data"] == 1
    assert heard == [Started, Ended, Left]
    assert Joined not in heard, "it had joined before we listened"
