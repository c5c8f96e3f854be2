"""Suspects of workers behind a coordinator run alone, and only the task that caused a crash spends attempts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import Fail, NewTask, Postpone, Report
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.runtime import Worker

from .conftest import registration
from .test_processes import Start, free_port, launch
from .test_source import claim, connect

__all__ = ["connect", "launch"]

HANDLERS = """
import asyncio, time
from pathlib import Path
from shiftboss.worker.handlers import Handlers

handlers = Handlers()

@handlers.task("block")
async def block() -> None:
    time.sleep(600)

@handlers.task("hold")
async def hold(flag: str) -> None:
    while not Path(flag).exists():
        await asyncio.sleep(0.05)
"""


async def test_crashed_stays_crashed_and_is_poison_the_second_time(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    [made] = await db.tasks.enqueue([NewTask(task_type="echo")])
    source = await connect(coordinator)
    for crashes in (0, 1):
        [task] = await claim(source, 1)
        assert task.crashes == crashes
        assert await source.report([Report(task, Fail("its process died", "crashed"), 0.1)]) == []
    row = await db.tasks.get(made.id)
    assert row
    assert (row["status"], row["crashes"]) == ("Failed", 2)
    assert row["error_message"].startswith("poison: ")
    assert [attempt["outcome"] for attempt in await db.tasks.attempts(made.id)] == ["crashed"] * 2


async def test_a_suspect_runs_alone(coordinator: Coordinator, db: Database, eventually: Any) -> None:
    """Nothing else is in the worker's name while it runs, not even in the buffer of its stream."""
    handlers, beside = Handlers(), []

    @handlers.task("echo")
    async def echo() -> None:
        pass

    @handlers.task("suspect")
    async def suspect() -> None:
        for _ in range(5):
            rows = await db.fetch("SELECT task_type FROM tasks WHERE status = 'In Progress'")
            beside.append([row["task_type"] for row in rows])
            await asyncio.sleep(0.05)

    many = [NewTask(task_type="echo") for _ in range(300)]
    made = await db.tasks.enqueue([*many[:150], NewTask(task_type="suspect"), *many[150:]])
    await db.execute("UPDATE tasks SET crashes = 1 WHERE id = %s", [made[150].id])
    source = CoordinatorSource([coordinator.address], CoordinatorSettings())
    settings = WorkerSettings(concurrency=2, beat_seconds=0.2, poll_seconds=0.1)
    member = Member(id="w1", capabilities=Capabilities(max_concurrent_tasks=2))
    async with Worker(source, handlers, member, settings):
        await eventually(lambda: all_complete(db), timeout=30)
    assert beside == [["suspect"]] * 5
    rows = await db.fetch("SELECT FROM tasks WHERE attempts > 0")
    assert rows == []


async def all_complete(db: Database) -> bool:
    return await db.fetch("SELECT FROM tasks WHERE status <> 'Complete'") == []


async def test_what_comes_while_a_worker_holds_goes_back(
    coordinator: Coordinator, db: Database, connect: Any, eventually: Any
) -> None:
    source = await connect(coordinator)
    await source.claim(3)
    await db.tasks.enqueue([NewTask(task_type="echo") for _ in range(3)])
    await asyncio.wait_for(source.arrived.wait(), 10)
    held = source.hold()
    await source.report([Report(task, Postpone(0, "given back"), 0.0) for task in held])

    async def none_held() -> bool:
        return await db.fetch("SELECT FROM tasks WHERE status = 'In Progress'") == []

    await eventually(none_held)
    assert len(await claim(source, 3)) == 3


async def test_of_four_who_register_one_name_at_once_one_wins(stub: Any) -> None:
    calls = [stub.RegisterWorker(registration("new", host="h", pid=pid)) for pid in range(1, 5)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert len(refused) == 3
    assert {error.code() for error in refused} == {grpc.StatusCode.ALREADY_EXISTS}


@pytest.mark.timeout(180)
async def test_a_blocked_worker_without_a_database_tells_who_did_it(
    db: Database, launch: Start, tmp_path: Path, eventually: Any
) -> None:
    (tmp_path / "blocking.py").write_text(HANDLERS)
    port, flag = str(free_port()), tmp_path / "flag"
    launch("coordinator", "--no-token", "--port", port)
    brief = {"SHIFTBOSS_WORKER_LEASE_SECONDS": "3", "SHIFTBOSS_WORKER_BEAT_SECONDS": "0.5"}

    def worker(id: str) -> Any:
        where = ("--coordinator", f"127.0.0.1:{port}")
        return launch("worker", "blocking:handlers", "--id", id, *where, database=False, **brief)

    async def count(condition: str, wanted: int) -> bool:
        return len(await db.fetch(f"SELECT FROM tasks WHERE {condition}")) == wanted

    first = worker("first")
    await db.tasks.enqueue([NewTask(task_type="hold", params={"flag": str(flag)}) for _ in range(2)])
    await eventually(lambda: count("status = 'In Progress'", 2), timeout=60)
    [blocker] = await db.tasks.enqueue([NewTask(task_type="block")])
    await eventually(lambda: first.poll() is not None, timeout=60)
    await eventually(lambda: count("status = 'Queued' AND attempts = 0 AND crashes = 0", 2))
    worker("second")
    flag.touch()
    await eventually(lambda: count("status = 'Complete' AND attempts = 0", 2), timeout=60)
    await eventually(lambda: count("status = 'Failed'", 1), timeout=60)
    row = await db.tasks.get(blocker.id)
    assert row
    assert row["error_message"].startswith("poison: ")
