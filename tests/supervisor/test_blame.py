"""Only the task that stopped its worker is blamed, whichever component detects it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shiftboss.db import Database
from tests.supervisor.conftest import SLOT, Supervise, ended, enqueue, row_of, status_of

BRIEF = {"SHIFTBOSS_WORKER_LEASE_SECONDS": "4"}
RUNNING = "SELECT FROM tasks WHERE status = 'In Progress'"


async def count(db: Database, sql: str, wanted: int) -> bool:
    return len(await db.fetch(sql)) == wanted


async def outcomes(db: Database, task: UUID) -> list[str]:
    rows = await db.fetch(
        "SELECT outcome FROM shiftboss.past_attempts WHERE task_id = %s AND outcome <> 'deferred'"
        " ORDER BY ended_at",
        [task],
    )
    return [row["outcome"] for row in rows]


async def states(db: Database) -> dict[UUID, tuple[str, int, int]]:
    rows = await db.fetch("SELECT id, status, attempts, crashes FROM tasks")
    return {row["id"]: (row["status"], row["attempts"], row["crashes"]) for row in rows}


async def finish(db: Database, eventually: Any, *tasks: UUID) -> None:
    for task in tasks:
        await eventually(lambda task=task: ended(db, task), timeout=60)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in BRIEF.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("task_type", "params"),
    [("kill", {"number": signal.SIGKILL}), ("kill", {"number": signal.SIGSEGV}), ("exit", {"status": 0})],
    ids=["SIGKILL", "SIGSEGV", "exit"],
)
async def test_a_crash(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path, task_type: str, params: Any
) -> None:
    bystanders = [await enqueue(db, "wait_for", path=str(tmp_path / "go")) for _ in range(3)]
    async with supervise({"q": 1}):
        await eventually(lambda: count(db, RUNNING, 3), timeout=30)
        killer = await enqueue(db, task_type, **params)
        await eventually(lambda: count(db, "SELECT FROM tasks WHERE crashes = 1", 1), timeout=30)
        (tmp_path / "go").touch()
        await finish(db, eventually, *bystanders, killer)
    assert await states(db) == {killer: ("Failed", 2, 2), **dict.fromkeys(bystanders, ("Complete", 0, 0))}
    assert await outcomes(db, bystanders[0]) == ["interrupted"]


@pytest.mark.parametrize("task_type", ["block", "block_in_part"])
async def test_a_blocked_event_loop(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path, brief: None, task_type: str
) -> None:
    """The worker itself tells who blocks it, before its leases run out, and makes room for another process."""
    bystanders = [await enqueue(db, "wait_for", path=str(tmp_path / "go")) for _ in range(3)]
    async with supervise({"q": 1}):
        await eventually(lambda: count(db, RUNNING, 3), timeout=30)
        blocker = await enqueue(db, task_type)
        await eventually(lambda: count(db, "SELECT FROM tasks WHERE crashes = 1", 1), timeout=30)
        (tmp_path / "go").touch()
        await finish(db, eventually, *bystanders, blocker)
        failed = await ended(db, blocker)
        assert failed is not None
        assert failed["error_message"].startswith("poison: ")
        assert "the event loop was blocked for" in failed["error_message"]
        assert "app.py:" in failed["error_message"]
        crashed = await db.events.latest(kind="slot.crashed")
        assert "the event loop was blocked for" in crashed[0]["details"]["reason"]
    assert await states(db) == {blocker: ("Failed", 2, 2), **dict.fromkeys(bystanders, ("Complete", 0, 0))}
    assert await outcomes(db, blocker) == ["crashed", "crashed"]


async def test_an_interpreter_that_is_stuck(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread of the worker can speak. Its leases run out before its supervisor acts, and still the rescuer
    leaves the verdict to the supervisor, which reads the worker's memory."""
    monkeypatch.setenv("SHIFTBOSS_WORKER_LEASE_SECONDS", "1")
    bystanders = [await enqueue(db, "wait_for", path=str(tmp_path / "go")) for _ in range(2)]
    async with supervise({"q": 1}, timeout_seconds=3.0):
        await eventually(lambda: count(db, RUNNING, 2), timeout=30)
        stuck = await enqueue(db, "hold_interpreter")

        async def blamed() -> bool:
            await db.workers.rescue()
            return await count(db, "SELECT FROM tasks WHERE crashes = 1", 1)

        await eventually(blamed, timeout=30)
        (tmp_path / "go").touch()
        await finish(db, eventually, *bystanders, stuck)
    assert await states(db) == {stuck: ("Failed", 2, 2), **dict.fromkeys(bystanders, ("Complete", 0, 0))}
    assert await outcomes(db, stuck) == ["crashed", "crashed"]


async def test_of_several_threads_one_is_found_by_running_them_alone(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    go = str(tmp_path / "go")
    awaiting = await enqueue(db, "wait_for", path=go)
    threads = [await enqueue(db, "thread_wait", path=go) for _ in range(2)]
    async with supervise({"q": 1}):
        await eventually(lambda: count(db, RUNNING, 3), timeout=30)
        killer = await enqueue(db, "thread_exit", status=3)
        await eventually(lambda: count(db, "SELECT FROM tasks WHERE crashes = 1", 3), timeout=30)
        (tmp_path / "go").touch()
        await finish(db, eventually, awaiting, *threads, killer)
    assert await states(db) == {
        killer: ("Failed", 1, 2),
        awaiting: ("Complete", 0, 0),
        **dict.fromkeys(threads, ("Complete", 0, 1)),
    }
    assert await outcomes(db, killer) == ["interrupted", "crashed"]


async def test_where_nothing_tells_who_did_it_all_are_suspects_and_none_spends_an_attempt(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    tasks = [await enqueue(db, "wait_for", path=str(tmp_path / "go")) for _ in range(3)]
    async with supervise({"q": 1}):
        await eventually(lambda: status_of(db, "healthy"), timeout=30)
        await eventually(lambda: count(db, RUNNING, 3), timeout=30)
        pid = (await row_of(db, SLOT))["pid"]
        os.kill(pid, signal.SIGSTOP)  # between two steps, most likely: they only sleep
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: count(db, "SELECT FROM tasks WHERE crashes = 1", 3), timeout=30)
        (tmp_path / "go").touch()
        await finish(db, eventually, *tasks)
    assert await states(db) == dict.fromkeys(tasks, ("Complete", 0, 1))


async def test_a_short_block_is_forgiven(
    db: Database, supervise: Supervise, eventually: Any, brief: None
) -> None:
    async with supervise({"q": 1}):
        await eventually(lambda: status_of(db, "healthy"), timeout=30)
        pid = (await row_of(db, SLOT))["pid"]
        task = await enqueue(db, "nap", seconds=1.5)
        done = await eventually(lambda: ended(db, task), timeout=30)
        assert (done["status"], done["attempts"]) == ("Complete", 0)
        assert (await row_of(db, SLOT))["pid"] == pid
