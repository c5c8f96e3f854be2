"""Handlers in child processes: what they raise, return, fork and leave behind, on a real database."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from shiftboss.app import App
from shiftboss.db import Database
from shiftboss.model.errors import UsageError
from shiftboss.worker import children
from shiftboss.worker.handlers import Handlers
from tests.worker import cpu
from tests.worker.conftest import StartWorker
from tests.worker.test_runtime import enqueue, finished

Eventually = Callable[..., Any]


@pytest.fixture
def handlers() -> Handlers:
    """Every function of the sample, each in a child process."""
    found = Handlers()
    for name, function in vars(cpu).items():
        if inspect.isfunction(function) and function.__module__ == cpu.__name__:
            found.task(name, mode="process")(function)
    return found


@pytest.mark.parametrize("name", cpu.ODD)
async def test_odd_exceptions_fail_the_task_and_not_the_child(
    db: Database, start_worker: StartWorker, handlers: Handlers, name: str
) -> None:
    async with start_worker(handlers, concurrency=1):
        before = await finished(db, await enqueue(db, "pid"))
        row = await finished(db, await enqueue(db, "raise_odd", {"name": name}, max_attempts=1))
        after = await finished(db, await enqueue(db, "pid"))
    assert (row["status"], row["attempts"]) == ("Failed", 1)
    assert name in row["error_message"]
    assert after["result_data"] == before["result_data"]


async def test_a_child_can_put_its_task_off(
    db: Database, start_worker: StartWorker, handlers: Handlers, tmp_path: Path
) -> None:
    async with start_worker(handlers):
        id = await enqueue(db, "put_off", {"path": str(tmp_path / "seen")})
        row = await finished(db, id)
    assert (row["status"], row["result_data"], row["attempts"]) == ("Complete", "attempt 1", 0)
    history = await db.tasks.attempts(id)
    assert [(a["outcome"], a["error"]) for a in history][:1] == [("deferred", "the press is busy")]


async def test_a_result_that_is_not_json_is_final(
    db: Database, start_worker: StartWorker, handlers: Handlers
) -> None:
    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "not_json", max_attempts=5))
    assert (row["status"], row["attempts"]) == ("Failed", 1)
    assert "not JSON" in row["error_message"]


async def test_wrong_arguments_are_final(db: Database, start_worker: StartWorker, handlers: Handlers) -> None:
    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "leak", {"megabytes": "many"}, max_attempts=5))
    assert (row["status"], row["attempts"]) == ("Failed", 1)


async def test_a_forked_copy_that_returns_is_not_heard(
    db: Database, start_worker: StartWorker, handlers: Handlers, tmp_path: Path
) -> None:
    go, done = tmp_path / "go", tmp_path / "done"
    os.mkfifo(go)
    os.mkfifo(done)
    ending = asyncio.create_task(asyncio.to_thread(done.read_bytes))
    async with start_worker(handlers, concurrency=1):
        forked = await finished(db, await enqueue(db, "fork_and_return", {"go": str(go), "done": str(done)}))
        await asyncio.to_thread(go.write_bytes, b"")
        await asyncio.wait_for(ending, 30)  # the copy is gone, whatever it had to say is said
        row = await finished(db, await enqueue(db, "pid"))
    assert forked["result_data"] == "original"
    assert isinstance(row["result_data"], int)


async def test_a_child_that_dies_is_noticed_while_a_fork_holds_its_pipe(
    db: Database, start_worker: StartWorker, handlers: Handlers, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "fork_and_die", {"path": str(path)}, max_attempts=1))
    os.kill(int(path.read_text()), signal.SIGKILL)
    assert "exited with status 7" in row["error_message"]


async def test_an_idle_child_that_died_is_not_the_next_tasks_fault(
    db: Database, start_worker: StartWorker, handlers: Handlers
) -> None:
    async with start_worker(handlers, concurrency=1):
        for _ in range(3):
            row = await finished(db, await enqueue(db, "pid", max_attempts=1))
            assert row["status"] == "Complete", row["error_message"]
            os.kill(row["result_data"], signal.SIGKILL)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_child_whose_pipes_are_closed_counts_as_dead(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def send() -> None:
        child = await children.Child.spawn()
        await child.kill()
        assert child.process.stdin is not None
        child.process.stdin.transport.close()
        await asyncio.sleep(0)
        with pytest.raises(children.ChildDied, match="killed"):
            await child.send({})

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(send())


async def test_a_killed_child_takes_its_family_along(
    db: Database, start_worker: StartWorker, handlers: Handlers, tmp_path: Path, eventually: Eventually
) -> None:
    path = tmp_path / "pid"
    async with start_worker(handlers):
        id = await enqueue(db, "family", {"path": str(path)}, max_attempts=1)
        other = int(await eventually(lambda: path.exists() and path.read_text(), 30))
        await db.tasks.cancel([id])
        assert (await finished(db, id))["status"] == "Cancelled"
        await eventually(lambda: not psutil.pid_exists(other))


async def test_a_child_knows_its_time(db: Database, start_worker: StartWorker, handlers: Handlers) -> None:
    async with start_worker(handlers):
        row = await finished(db, await enqueue(db, "seconds_left", timeout=timedelta(seconds=60)))
        assert 30 < row["result_data"] < 60
        assert (await finished(db, await enqueue(db, "seconds_left")))["result_data"] is None


async def test_a_child_that_keeps_too_much_memory_is_replaced(
    db: Database, start_worker: StartWorker, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "WATCH_SECONDS", 60.0)  # it is to end by itself, however slowly
    most = psutil.Process().memory_info().rss // 1024**2 + 300
    async with start_worker(handlers, concurrency=1, max_memory_mb=most):
        pids = [
            (await finished(db, await enqueue(db, "leak", {"megabytes": size})))["result_data"]
            for size in (1, most, 1)
        ]
    assert pids[0] == pids[1] != pids[2]


async def test_a_child_that_takes_too_much_memory_is_ended(
    db: Database, start_worker: StartWorker, handlers: Handlers, tmp_path: Path
) -> None:
    most = psutil.Process().memory_info().rss // 1024**2 + 300
    async with start_worker(handlers, concurrency=1, max_memory_mb=most):
        params = {"megabytes": most, "path": str(tmp_path / "full")}
        row = await finished(db, await enqueue(db, "leak", params, max_attempts=1))
        assert f"more than {most} MB" in row["error_message"]
        assert (await finished(db, await enqueue(db, "pid")))["status"] == "Complete"


def test_what_a_child_could_not_import_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="inside a function"):

        @Handlers().task("inner", mode="process")
        def inner() -> None: ...


async def test_a_worker_in_a_script_refuses_process_handlers_of_that_script(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("script")
    monkeypatch.setattr(cpu.pid, "__module__", "__main__")
    app.task(mode="process")(cpu.pid)
    await app.use(db)
    with pytest.raises(UsageError, match="script"):
        async with app.worker():
            pass
