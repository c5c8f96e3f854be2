"""A real worker on a real database: outcomes, limits of time, orders, stopping."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shiftboss import App, SyncContext
from shiftboss.db import Database
from shiftboss.model.errors import Defer
from shiftboss.model.task import NewTask, Report
from shiftboss.worker.context import Context
from shiftboss.worker.executor import Attempt
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.source import DatabaseSource
from tests.worker.conftest import StartWorker


async def finished(db: Database, id: Any, timeout: float = 40.0) -> dict[str, Any]:
    deadline = time.monotonic() + timeout
    while True:
        row = await db.tasks.get(id)
        assert row is not None
        if row["status"] in ("Complete", "Failed", "Cancelled"):
            return row
        assert time.monotonic() < deadline, row
        await asyncio.sleep(0.02)


async def enqueue(db: Database, task_type: str, params: dict[str, Any] | None = None, **terms: Any) -> Any:
    [made] = await db.tasks.enqueue([NewTask(task_type=task_type, params=params or {}, **terms)])
    return made.id


async def test_async_thread_and_process_handlers_return_results(
    db: Database, start_worker: StartWorker
) -> None:
    handlers = Handlers()

    @handlers.task("double")
    async def double(n: int) -> int:
        return n * 2

    @handlers.task("thread")
    def thread() -> str:
        return threading.current_thread().name

    handlers.task("cpu", mode="process")(cpu)
    async with start_worker(handlers):
        ids = [
            await enqueue(db, "double", {"n": "21"}),
            await enqueue(db, "thread"),
            await enqueue(db, "cpu", {"n": 3}),
        ]
        rows = [await finished(db, id) for id in ids]
    assert rows[0]["result_data"] == 42
    assert rows[1]["result_data"] == f"task-{ids[1]}"
    assert rows[2]["result_data"]["n"] == 3
    assert rows[2]["result_data"]["pid"] != os.getpid()


def cpu(n: int) -> dict[str, Any]:
    return {"n": n, "pid": os.getpid()}


def crash() -> None:
    os.kill(os.getpid(), 9)


def spin() -> None:
    while True:
        pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        BaseExceptionGroup("g", [SystemExit()]),
        Unprintable(),
        StopIteration("x"),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_odd_exceptions_fail_the_task_and_not_the_worker(
    db: Database, start_worker: StartWorker, error: BaseException, mode: str
) -> None:
    handlers = Handlers()

    async def odd_async() -> None:
        raise error

    def odd_thread() -> None:
        raise error

    handlers.task("odd")(odd_async if mode == "async" else odd_thread)

    @handlers.task("fine")
    async def fine() -> str:
        return "ok"

    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "odd", max_attempts=1))
        assert row["status"] == "Failed"
        assert row["attempts"] == 1
        assert (await finished(db, await enqueue(db, "fine")))["result_data"] == "ok"


async def test_failures_are_retried_with_their_history(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()

    @handlers.task("flaky")
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    async with start_worker(handlers):
        id = await enqueue(db, "flaky")
        row = await finished(db, id)
    assert (row["status"], row["result_data"], row["attempts"]) == ("Complete", 3, 2)
    history = await db.tasks.attempts(id)
    assert [attempt["outcome"] for attempt in history] == ["failed", "failed", "complete"]
    assert "ValueError: attempt 1" in history[0]["error"]
    assert {attempt["worker_id"] for attempt in history} == {"w1"}


@pytest.mark.parametrize(
    ("params", "word"),
    [({"n": "x"}, "n: Input should be"), ({}, "n: Field required"), ({"n": 1, "m": 2}, "m: Extra")],
)
async def test_bad_arguments_fail_at_once_without_retry(
    db: Database, start_worker: StartWorker, params: dict[str, Any], word: str
) -> None:
    handlers = Handlers()

    @handlers.task("typed")
    async def typed(n: int) -> None:
        raise AssertionError("must not run")

    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "typed", params))
    assert (row["status"], row["attempts"]) == ("Failed", 1)
    assert word in row["error_message"]


async def test_results_that_are_not_json_fail(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()

    @handlers.task("odd")
    async def odd(what: str) -> Any:
        return {"object": object(), "nul": "a\x00b", "big": 2**70, "set": {1}}[what]

    async with start_worker(handlers):
        rows = {
            what: await finished(db, await enqueue(db, "odd", {"what": what}))
            for what in ("object", "nul", "big", "set")
        }
    assert [rows[what]["status"] for what in ("object", "nul", "big")] == ["Failed"] * 3
    assert "NUL" in rows["nul"]["error_message"]
    assert rows["set"]["result_data"] == [1]


async def test_defer_spends_no_attempt(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    seen = 0

    @handlers.task("later")
    async def later(ctx: Context) -> int:
        nonlocal seen
        seen += 1
        if seen == 1:
            raise Defer("rate limited", 0.05)
        return ctx.attempt

    async with start_worker(handlers, poll_seconds=0.05):
        row = await finished(db, await enqueue(db, "later"))
    assert (row["status"], row["attempts"], row["result_data"]) == ("Complete", 0, 1)


async def test_timeouts_end_every_kind_of_handler(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    release = threading.Event()

    @handlers.task("coroutine")
    async def coroutine() -> None:
        await asyncio.Event().wait()

    @handlers.task("thread")
    def thread() -> None:
        release.wait(30)

    handlers.task("process", mode="process")(spin)
    terms: dict[str, Any] = {"timeout": timedelta(seconds=0.3), "max_attempts": 1}
    async with start_worker(handlers) as worker:
        ids = [await enqueue(db, name, **terms) for name in ("coroutine", "thread", "process")]
        rows = [await finished(db, id) for id in ids]
        usage = worker._usage()
    release.set()
    assert [row["status"] for row in rows] == ["Failed"] * 3
    assert all("timed out" in row["error_message"] for row in rows)
    assert usage["abandoned"] == 1


async def test_a_child_that_dies_twice_is_poison(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    handlers.task("crash", mode="process")(crash)
    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "crash", max_attempts=10))
    assert (row["status"], row["attempts"]) == ("Failed", 2)
    assert "poison" in row["error_message"]
    assert "SIGKILL" in row["error_message"]


async def test_cancel_reaches_a_running_task(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers = Handlers()
    started = asyncio.Event()

    @handlers.task("long")
    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    async with start_worker(handlers, beat_seconds=30):
        id = await enqueue(db, "long")
        await started.wait()
        [cancel] = await db.tasks.cancel([id], "not wanted")
        assert cancel.cancelling
        row = await finished(db, id)
    assert row["status"] == "Cancelled"
    assert row["error_message"] == "not wanted"


async def test_progress_is_shown_and_never_goes_down(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers = Handlers()
    go = asyncio.Event()

    @handlers.task("long")
    async def long(ctx: Context) -> None:
        for percent in (10, 50, 30):
            ctx.progress(percent, f"at {percent}")
        await go.wait()

    async with start_worker(handlers):
        id = await enqueue(db, "long")

        async def shown() -> bool:
            row = await db.tasks.get(id)
            return row is not None and row["progress"] is not None

        await eventually(shown)
        row = await db.tasks.get(id)
        go.set()
        assert row is not None
        assert row["progress_message"] == "at 30"
        done = await finished(db, id)
    assert done["progress"] == 100


async def test_stop_gives_back_what_does_not_end_in_time(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    started = asyncio.Event()

    @handlers.task("long")
    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    async with start_worker(handlers, concurrency=1, grace_seconds=0.1):
        ids = [await enqueue(db, "long") for _ in range(2)]
        await started.wait()
    for id in ids:
        row = await db.tasks.get(id)
        assert row is not None
        assert (row["status"], row["attempts"], row["worker_id"]) == ("Queued", 0, None)
    worker = await db.workers.get("w1")
    assert worker is not None
    assert worker["status"] == "inactive"


async def test_drain_finishes_what_is_in_hand_and_ends(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers = Handlers()
    started, go = asyncio.Event(), asyncio.Event()

    @handlers.task("long")
    async def long() -> str:
        started.set()
        await go.wait()
        return "done"

    async with start_worker(handlers, concurrency=1) as worker:
        id = await enqueue(db, "long")
        await started.wait()
        assert await db.workers.set_flags("w1", draining=True)
        await eventually(lambda: worker._draining)
        other = await enqueue(db, "long")
        go.set()
        await asyncio.wait_for(worker.wait(), 5)
    assert (await finished(db, id))["result_data"] == "done"
    row = await db.tasks.get(other)
    assert row is not None
    assert row["status"] == "Queued"


async def test_a_worker_that_lost_its_leases_stops_the_work(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    started, ended = asyncio.Event(), asyncio.Event()

    @handlers.task("long")
    async def long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with start_worker(handlers, concurrency=1):
        id = await enqueue(db, "long", max_attempts=5)
        await started.wait()
        assert await db.workers.lose_worker(["w1"], "lost", "presumed dead") == 1
        await asyncio.wait_for(ended.wait(), 5)
    row = await db.tasks.get(id)
    assert row is not None
    assert row["attempts"] == 1
    assert (await db.tasks.attempts(id))[0]["outcome"] == "lost"


async def test_many_tasks_are_claimed_ahead_and_all_done_once(
    db: Database, start_worker: StartWorker
) -> None:
    handlers = Handlers()
    seen: list[int] = []

    @handlers.task("n")
    async def count(n: int) -> None:
        seen.append(n)

    await db.tasks.copy(NewTask(task_type="n", params={"n": n}) for n in range(5000))
    async with start_worker(handlers) as worker:
        deadline = time.monotonic() + 30
        while worker.counters.completed < 5000:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
    assert sorted(seen) == list(range(5000))
    row = await db.fetch_one(
        "SELECT count(*) AS n, sum(attempts) AS lost FROM tasks WHERE status = 'Complete'"
    )
    assert row == {"n": 5000, "lost": 0}
    stats = await db.fetch_one(
        "SELECT sum(completed) AS n, shiftboss.sum_buckets(buckets) AS b FROM shiftboss.stats"
    )
    assert stats is not None
    assert stats["n"] == 5000
    assert sum(stats["b"]) == 5000


async def test_claims_go_on_as_soon_as_reports_are_delivered(
    db: Database, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with many undelivered reports claims nothing. The delivery ends that, not the next poll."""
    handlers, gate = Handlers(), asyncio.Event()
    deliver = DatabaseSource.report

    @handlers.task("n")
    async def count() -> None: ...

    async def held_up(self: DatabaseSource, reports: Sequence[Report]) -> list[UUID]:
        await gate.wait()
        return await deliver(self, reports)

    monkeypatch.setattr(DatabaseSource, "report", held_up)
    await db.tasks.copy(NewTask(task_type="n") for _ in range(50))
    async with start_worker(handlers, concurrency=2, batch=2, poll_seconds=600.0) as worker:
        async with asyncio.timeout(30):
            while len(worker._outbox) <= 4:
                await asyncio.sleep(0.01)
            assert worker.counters.completed < 50
            gate.set()
            while worker.counters.completed < 50:
                await asyncio.sleep(0.01)


async def test_a_result_survives_the_death_of_its_worker_in_the_spool(db: Database, tmp_path: Path) -> None:
    from shiftboss.model.task import Complete, Report
    from shiftboss.worker.spool import Spool

    id = await enqueue(db, "x")
    [task] = await db.tasks.claim("w1")
    dead = Spool(tmp_path)
    dead.write([Report(task, Complete(b'{"kept": true}'), 1.0)])
    dead._lock.close()
    with Spool(tmp_path).left_behind() as kept:
        held = [(report.task.id, report.task.lease) for report in kept[""]]
        assert await db.tasks.complete(held, [b'{"kept": true}']) == []
    row = await db.tasks.get(id)
    assert row is not None
    assert row["result_data"] == {"kept": True}
    with Spool(tmp_path).left_behind() as again:
        assert again == {}


async def test_attempts_do_not_see_the_context_variables_of_others(
    db: Database, start_worker: StartWorker
) -> None:
    """An attempt starts as soon as another one ends, but must not inherit its context."""
    handlers = Handlers()
    user: ContextVar[int | None] = ContextVar("user", default=None)
    seen = []

    @handlers.task("speak")
    async def speak(n: int) -> None:
        seen.append(user.get())
        user.set(n)

    ids = [await enqueue(db, "speak", {"n": n}) for n in range(20)]
    async with start_worker(handlers, concurrency=1):
        for id in ids:
            await finished(db, id)
    assert seen == [None] * 20


async def test_attempts_see_the_context_variables_of_start_hooks(
    db: Database, start_worker: StartWorker
) -> None:
    app, shop, seen = App("hooked"), ContextVar[str]("shop"), []

    @app.on_start
    def choose() -> None:
        shop.set("here")

    @app.task("look")
    async def look() -> None:
        seen.append(shop.get(None))

    ids = [await enqueue(db, "look") for _ in range(20)]
    async with start_worker(app.handlers, concurrency=1):
        for id in ids:
            await finished(db, id)
    assert seen == ["here"] * 20


@pytest.mark.parametrize("mode", ["plain", "context", "thread"])
async def test_ended_attempts_leave_nothing_to_the_garbage_collector(
    mode: str, db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers = Handlers()

    async def plain() -> None: ...

    async def context(ctx: Context) -> None:
        await ctx.step("once", plain)

    def thread(ctx: SyncContext) -> None: ...

    handlers.task("traceless")({"plain": plain, "context": context, "thread": thread}[mode])

    ids = [await enqueue(db, "traceless") for _ in range(20)]
    gc.collect()
    gc.disable()
    try:
        async with start_worker(handlers):
            for id in ids:
                await finished(db, id)
            await eventually(lambda: not attempts("traceless"))
    finally:
        gc.enable()


def attempts(task_type: str) -> list[Attempt]:
    """Return the attempts that are still in memory."""
    found = [one for one in gc.get_objects() if type(one) is Attempt]
    return [attempt for attempt in found if attempt.task.task_type == task_type]
