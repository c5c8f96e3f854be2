"""Invalid handlers and rows fail their own task and nothing else."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.model.errors import Defer, UsageError
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handlers
from tests.conftest import as_superuser
from tests.worker.conftest import StartWorker
from tests.worker.test_runtime import enqueue, finished

DEEP = '{"n": ' + "[" * 1100 + "]" * 1100 + "}"


async def ended(db: Database, ids: list[Any], eventually: Callable[..., Any]) -> dict[Any, dict[str, Any]]:
    """Their rows without the JSON, which may be what cannot be read."""
    sql = "SELECT id, status, attempts, error_message FROM tasks WHERE id = ANY(%s)"

    async def rows() -> list[dict[str, Any]] | None:
        found = await db.fetch(sql, [ids])
        return found if all(row["status"] in ("Complete", "Failed") for row in found) else None

    return {row["id"]: row for row in await eventually(rows, 40)}


@pytest.mark.parametrize(
    "column",
    [
        """params = '{"n": 1e400}'""",
        f"params = '{DEEP}'",
        """metadata = '{"n": 1e400}'""",
    ],
    ids=["huge number", "deep", "metadata"],
)
async def test_a_row_that_can_not_be_read_fails_alone(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any], column: str
) -> None:
    handlers = Handlers()

    @handlers.task("any")
    async def any_(**params: Any) -> int:
        return 1

    ids = [await enqueue(db, "any", {"n": n}) for n in range(5)]
    with psycopg.connect(as_superuser(db.url), autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")  # a row older than the checks
        conn.execute(f"UPDATE tasks SET {column} WHERE id = %s", [ids[2]])  # type: ignore[arg-type]
    async with start_worker(handlers) as worker:
        rows = await ended(db, ids, eventually)
        assert worker.running
    bad = rows.pop(ids[2])
    assert (bad["status"], bad["attempts"]) == ("Failed", 1)
    assert "cannot be parsed" in bad["error_message"]
    assert {row["status"] for row in rows.values()} == {"Complete"}


@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_errors_of_any_text_are_stored(db: Database, start_worker: StartWorker, mode: str) -> None:
    handlers = Handlers()

    def odd() -> None:
        raise ValueError("a \ud800 b \x00 c")

    async def odd_async() -> None:
        odd()

    handlers.task("odd")(odd if mode == "thread" else odd_async)
    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "odd", max_attempts=1))
    assert "a \\ud800 b \\x00 c" in row["error_message"]


@pytest.mark.parametrize("seconds", [math.inf, math.nan, 1e15])
async def test_nobody_can_defer_for_ever(db: Database, start_worker: StartWorker, seconds: float) -> None:
    with pytest.raises(UsageError, match="cannot be deferred"):
        Defer("x", seconds)
    handlers = Handlers()

    @handlers.task("later")
    async def later() -> None:
        defer = Defer("a \ud800", 1)
        defer.seconds = seconds  # by force: nothing checks it before it is sent
        raise defer

    @handlers.task("fine")
    async def fine() -> str:
        return "ok"

    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "later"))
        assert (await finished(db, await enqueue(db, "fine")))["result_data"] == "ok"
    assert (row["status"], row["attempts"]) == ("Failed", 1)
    assert "could not be stored" in row["error_message"]


async def test_progress_of_any_kind_hides_nobody_elses(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any]
) -> None:
    handlers = Handlers()
    go = asyncio.Event()
    odd: list[tuple[Any, Any]] = [
        (1e9, "a\x00b"),
        (-5, "\ud800"),
        (math.nan, None),
        (math.inf, 7),
        (50, "fine"),
    ]

    @handlers.task("long")
    async def long(ctx: Context, n: int) -> None:
        ctx.progress(*odd[n])
        await go.wait()

    async with start_worker(handlers, concurrency=10):
        ids = [await enqueue(db, "long", {"n": n}) for n in range(len(odd))]

        async def shown() -> list[Any] | None:
            rows = [await db.tasks.get(id) for id in ids]
            words = [(row["progress"], row["progress_message"]) for row in rows if row]
            return words if all(percent is not None for percent, _ in words) else None

        words = await eventually(shown)
        go.set()
    assert [message for _, message in words] == ["a\\x00b", "\\ud800", None, "7", "fine"]
    assert [percent for percent, _ in words[1:3]] == [0, 0]
    assert words[4][0] == 50


@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_a_handler_that_forks_leaves_one_worker(
    db: Database, start_worker: StartWorker, mode: str
) -> None:
    handlers = Handlers()
    children: list[int] = []

    def fork() -> int:
        pid = os.fork()
        if pid:
            children.append(pid)
        return pid

    async def fork_async() -> int:
        return fork()

    handlers.task("fork")(fork if mode == "thread" else fork_async)
    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "fork"))
        _, status = await asyncio.to_thread(os.waitpid, children[0], 0)
    assert row["result_data"] == children[0], "the parent's return counts"
    assert os.waitstatus_to_exitcode(status) == 70


@pytest.mark.parametrize("ignored", [asyncio.CancelledError, BaseException])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_handler_that_does_not_listen_is_left_behind(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any], ignored: type[BaseException]
) -> None:
    handlers = Handlers()

    @handlers.task("deaf")
    async def deaf() -> None:
        while True:
            with suppress(ignored):
                await asyncio.Event().wait()

    @handlers.task("fine")
    async def fine() -> str:
        return "ok"

    async with start_worker(handlers, concurrency=1) as worker:
        id = await enqueue(db, "deaf", timeout=timedelta(seconds=0.1), max_attempts=1)
        assert "timed out" in (await finished(db, id))["error_message"]
        assert (await finished(db, await enqueue(db, "fine")))["result_data"] == "ok", "its slot is free"
        assert worker._usage()["abandoned"] == 1
        # The end of an event loop waits for all its tasks.
        await eventually(lambda: not [task for task in asyncio.all_tasks() if "_attempt" in repr(task)])


@pytest.mark.parametrize("size", [1, 2])
async def test_a_batch_that_does_not_listen_is_left_behind(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any], size: int
) -> None:
    handlers = Handlers()

    @handlers.task("deaf", batch=size)
    async def deaf(items: list[int]) -> list[int]:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async with start_worker(handlers) as worker:
        terms: dict[str, Any] = {"timeout": timedelta(seconds=0.2), "max_attempts": 1}
        for id in [await enqueue(db, "deaf", params={"item": n}, **terms) for n in range(size)]:
            assert "timed out" in (await finished(db, id))["error_message"]
        await eventually(lambda: worker._usage()["abandoned"] == 1)
        await eventually(lambda: not [task for task in asyncio.all_tasks() if "Batches._call" in repr(task)])


async def test_what_a_stopped_handler_raises_does_not_count(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    started = asyncio.Event()

    @handlers.task("odd")
    async def odd() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("translated") from None

    async with start_worker(handlers, grace_seconds=0.0):
        id = await enqueue(db, "odd")
        await started.wait()
    row = await db.tasks.get(id)
    assert row is not None
    assert (row["status"], row["attempts"]) == ("Queued", 0)


async def test_an_attempt_that_is_stopped_before_its_first_step_is_given_back(
    db: Database, start_worker: StartWorker, eventually: Callable[..., Any]
) -> None:
    handlers = Handlers()
    ran = threading.Event()

    @handlers.task("t")
    async def t() -> None:
        ran.set()

    async with start_worker(handlers) as worker:
        await db.workers.set_flags("w1", paused=True)
        await eventually(lambda: worker._paused)
        await enqueue(db, "t")
        [task] = await db.tasks.claim("other")
        worker._inbox.append((task, time.monotonic()))
        worker._start_tasks()
        worker._stop_one(task.lease, "stop")
        await eventually(lambda: not worker._running and not len(worker._outbox))
    row = await db.tasks.get(task.id)
    assert row is not None
    assert not ran.is_set()
    assert (row["status"], row["attempts"]) == ("Queued", 0)
