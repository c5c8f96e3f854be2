"""A worker whose database is unreachable for longer than its leases, or whose connection is frozen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseUnavailable
from shiftboss.model.task import NewTask
from shiftboss.worker.handlers import Handlers
from tests.conftest import outage

from .conftest import StartWorker
from .line import Line

LEASE = 5.0


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
            with suppress(DatabaseUnavailable):  # a pooler remembers the outage for a moment
                await db.execute("SELECT shiftboss.rescue()")
                row = await db.tasks.get(made.id)
                return row if row is not None and row["status"] == "Complete" else None

        row = await eventually(done, timeout=30)
    assert row["result_data"] == "done"
    assert len(begun) == 2


async def test_a_dead_line_is_noticed_before_the_leases_end(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    began, ended = asyncio.Event(), asyncio.Event()

    @handlers.task("long")
    async def long() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with (
        Line(db.url) as line,
        await Database.open(line.url) as by,
        start_worker(handlers, by=by, lease_seconds=LEASE, grace_seconds=0.0),
    ):
        await db.tasks.enqueue([NewTask(task_type="long")])
        await asyncio.wait_for(began.wait(), 20)
        line.alive.clear()
        async with asyncio.timeout(LEASE):
            await ended.wait()
        line.alive.set()


async def test_a_blocked_loop_costs_no_work_while_the_leases_last(
    db: Database, start_worker: StartWorker
) -> None:
    handlers = Handlers()
    began = asyncio.Event()

    @handlers.task("long")
    async def long() -> str:
        began.set()
        await blocked.wait()
        await asyncio.sleep(0.5)  # some beats
        return "done"

    @handlers.task("block")
    async def block() -> None:
        time.sleep(LEASE * 0.75)
        blocked.set()

    blocked = asyncio.Event()
    async with start_worker(handlers, lease_seconds=LEASE, concurrency=2) as worker:
        [made] = await db.tasks.enqueue([NewTask(task_type="long")])
        await asyncio.wait_for(began.wait(), 20)
        await db.tasks.enqueue([NewTask(task_type="block")])
        await asyncio.wait_for(worker._idle.wait(), 20)
    row = await db.tasks.get(made.id)
    assert row is not None
    assert (row["status"], row["result_data"], row["attempts"]) == ("Complete", "done", 0)


@pytest.mark.session  # the claim has to be committed before its answer: behind a pooler it is a transaction
async def test_what_a_slow_claim_brings_is_not_taken_back_meanwhile(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any]
) -> None:
    """The database has given it out long ago; the worker, whose beats go on, has not heard of it yet."""
    handlers = Handlers()

    @handlers.task("t")
    async def t() -> str:
        return "done"

    [made] = await db.tasks.enqueue([NewTask(task_type="t")])
    async with (
        Line(db.url, hush=b"shiftboss.claim(") as line,
        await Database.open(line.url, min_size=3) as by,
        start_worker(handlers, by=by),
    ):
        ago = "UPDATE tasks SET generation_started_at = generation_started_at - interval '20 seconds'"

        async def given() -> bool:
            return await db.execute(f"{ago} WHERE status = 'In Progress'") == 1

        await eventually(given)

        async def beats() -> Any:
            row = await db.workers.get("w1")
            return row and row["last_heartbeat"]

        for _ in range(3):
            last = await beats()
            await eventually(lambda last=last: _after(beats, last))
        row = await db.tasks.get(made.id)
        assert row is not None
        assert row["status"] == "In Progress"
        line.spoken.set()

        async def done() -> bool:
            row = await db.tasks.get(made.id)
            return row is not None and row["status"] == "Complete"

        await eventually(done)
    assert [attempt["outcome"] for attempt in await db.tasks.attempts(made.id)] == ["complete"]


@pytest.mark.session  # the claim has to be committed before its answer: behind a pooler it is a transaction
@pytest.mark.parametrize("answered", [True, False])
async def test_a_stop_does_not_wait_for_a_claim_and_runs_nothing_of_it(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any], answered: bool
) -> None:
    handlers = Handlers()
    ran: list[str] = []

    @handlers.task("t")
    async def t() -> None:
        ran.append("t")

    async def status() -> str:
        row = await db.tasks.get(made.id)
        assert row is not None
        return f"{row['status']} {row['attempts']}"

    async def given() -> bool:
        return await status() == "In Progress 0"

    [made] = await db.tasks.enqueue([NewTask(task_type="t")])
    async with (
        Line(db.url, hush=b"shiftboss.claim(") as line,
        await Database.open(line.url, min_size=3) as by,
        start_worker(handlers, by=by, grace_seconds=20) as worker,
    ):
        await eventually(given)
        worker.request_stop()
        if answered:
            line.spoken.set()
        await asyncio.wait_for(worker.wait(), 10)
        assert await status() == "Queued 0"
    assert ran == []


async def _after(beats: Callable[[], Any], last: Any) -> bool:
    return bool(await beats() > last)
