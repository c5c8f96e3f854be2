"""Real worker processes and real signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.layout import Layout
from shiftboss.db.migrate import migrate
from shiftboss.lifecycle.processes import identity
from shiftboss.model.task import Complete, NewTask, Report
from shiftboss.model.worker import Member
from shiftboss.worker.spool import Spool
from tests.conftest import TEMPLATE, _fresh
from tests.pooler import needs_pooler, pooler
from tests.worker.line import Line
from tests.worker.test_delivery import setting
from tests.worker.test_runtime import enqueue, finished

QUICK = {
    "SHIFTBOSS_WORKER_BEAT_SECONDS": "0.2",
    "SHIFTBOSS_WORKER_POLL_SECONDS": "0.2",
    "SHIFTBOSS_WORKER_LEASE_SECONDS": "3",
    "SHIFTBOSS_WORKER_GRACE_SECONDS": "10",
}


@asynccontextmanager
async def worker(
    url: str, tmp_path: Path, name: str = "p1", **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shiftboss", "worker", "tests.worker.sample:handlers", "--id", name,
        env={**os.environ, **QUICK, "SHIFTBOSS_DATABASE_URL": url, "SHIFTBOSS_DATA_DIR": str(tmp_path), **env},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_sigterm_finishes_the_running_task_and_leaves(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    gate = tmp_path / "gate"
    async with worker(database_url, tmp_path) as process:
        id = await enqueue(db, "wait_for", {"path": str(gate)})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        process.send_signal(signal.SIGTERM)
        gate.touch()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    assert (await finished(db, id))["result_data"] == "seen"
    row = await db.workers.get("p1")
    assert row is not None
    assert row["status"] == "inactive"


async def test_the_server_shows_whose_connections_they_are(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    mine = """SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'shiftboss worker p1'"""
    async with worker(database_url, tmp_path):
        await eventually(lambda: db.fetch(mine), 60)


async def test_workers_that_nobody_supervises_look_after_each_other(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    gate = tmp_path / "gate"
    eager = {"SHIFTBOSS_LEADER_ELECT_SECONDS": "0.1", "SHIFTBOSS_LEADER_RESCUE_SECONDS": "0.2"}
    async with worker(database_url, tmp_path, **eager) as first:
        id = await enqueue(db, "wait_for", {"path": str(gate)})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        async with worker(database_url, tmp_path, "p2", **eager):
            await eventually(lambda: db.workers.get("p2"), 60)
            first.kill()
            gate.touch()
            assert (await finished(db, id))["worker_id"] == "p2"


async def test_a_second_signal_ends_at_once(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    async with worker(database_url, tmp_path) as process:
        await enqueue(db, "wait_for", {"path": str(tmp_path / "gate")})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        await eventually(lambda: _told(process), 10)
        assert process.returncode == 128 + signal.SIGTERM


async def test_a_second_signal_ends_a_blocked_loop(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    async with worker(database_url, tmp_path) as process:
        await enqueue(db, "block_loop", {"path": str(tmp_path / "gate")})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        await eventually(lambda: _told(process), 10)
        assert process.returncode == 128 + signal.SIGTERM


def _told(process: asyncio.subprocess.Process) -> bool:
    """Tell it to end, again and again: two signals that come together are one. True: it has."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)  # send_signal() would take the exit status away
    return process.returncode is not None


@pytest.mark.parametrize("kind", ["wait_for", "deaf"])
async def test_sigterm_hands_back_what_does_not_end_in_time(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any], kind: str
) -> None:
    async with worker(database_url, tmp_path, SHIFTBOSS_WORKER_GRACE_SECONDS="0.5") as process:
        id = await enqueue(db, kind, {"path": str(tmp_path / "gate")})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    row = await db.tasks.get(id)
    assert row is not None
    assert (row["status"], row["attempts"], row["worker_id"]) == ("Queued", 0, None)
    assert row["wait_reason"] == "its worker stopped"


async def test_a_handler_that_forks_leaves_one_worker_process(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    async with worker(database_url, tmp_path):
        row = await finished(db, await enqueue(db, "fork", {"path": str(tmp_path / "f")}), 60)
        copy = int((tmp_path / "f.forked").read_text())
        assert row["result_data"] == copy
        await eventually(lambda: identity(copy) is None)
        assert (await finished(db, await enqueue(db, "echo", {"text": "on"})))["result_data"] == "on"


async def test_results_for_a_read_only_database_outlive_the_worker(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    gate, spool = tmp_path / "gate", tmp_path / "spool"
    patient = {"SHIFTBOSS_WORKER_LEASE_SECONDS": "60"}
    async with worker(database_url, tmp_path, "first", **patient) as first:
        id = await enqueue(db, "wait_for", {"path": str(gate)})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        async with setting(db, "default_transaction_read_only", "on"):
            gate.touch()
            await eventually(lambda: list(spool.glob("*/*.reports")), 20)
            first.kill()
            await first.wait()
    async with worker(database_url, tmp_path, "second"), await Database.open(database_url) as fresh:
        row = await finished(fresh, id, 60)
        assert (row["status"], row["result_data"], row["attempts"]) == ("Complete", "seen", 0)
        assert row["worker_id"] == "first"
        await eventually(lambda: not list(spool.glob("*/*.reports")))


async def test_a_worker_of_another_database_leaves_kept_results_alone(
    db: Database, database_url: str, server_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """Two fleets on one host share a data directory."""
    gate, spool = tmp_path / "gate", tmp_path / "spool"
    patient = {"SHIFTBOSS_WORKER_LEASE_SECONDS": "60"}
    async with worker(database_url, tmp_path, "first", **patient) as first:
        id = await enqueue(db, "wait_for", {"path": str(gate)})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        async with setting(db, "default_transaction_read_only", "on"):
            gate.touch()
            await eventually(lambda: list(spool.glob("*/*.reports")), 20)
            first.kill()
            await first.wait()
    with contextmanager(_fresh)(server_url, TEMPLATE) as other:
        async with worker(other, tmp_path, "other"), await Database.open(other) as there:
            row = await finished(there, await enqueue(there, "echo", {"text": "on"}), 60)
            assert row["result_data"] == "on"
    assert list(spool.glob("*/*.reports"))
    async with worker(database_url, tmp_path, "second"), await Database.open(database_url) as fresh:
        row = await finished(fresh, id, 60)
        assert (row["status"], row["result_data"], row["worker_id"]) == ("Complete", "seen", "first")


async def test_results_that_an_older_version_kept_are_delivered_to_their_own_database(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """It kept those of all databases in one folder."""
    shared = tmp_path / "spool"
    await db.workers.register(Member(id="old"))
    await db.tasks.enqueue([NewTask(task_type="t")])
    [own] = await db.tasks.claim("old")
    for task in (own, own._replace(id=uuid4())):
        kept = Spool(shared)
        kept.write([Report(task, Complete(b'"kept"'), 0.1)])
        kept.close()
    async with worker(database_url, tmp_path):
        assert (await finished(db, own.id, 60))["result_data"] == "kept"
        await eventually(lambda: len(list(shared.glob("**/*.reports"))) == 1)
    assert len(list(shared.glob("*.reports"))) == 1


async def test_results_on_a_dead_line_are_on_disk_soon_after_sigterm(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    gate, spool = tmp_path / "gate", tmp_path / "spool"
    patient = {"SHIFTBOSS_WORKER_LEASE_SECONDS": "60", "SHIFTBOSS_WORKER_GRACE_SECONDS": "1"}
    async with Line(database_url) as line, worker(line.url, tmp_path, "first", **patient) as first:
        id = await enqueue(db, "wait_for", {"path": str(gate)})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        line.alive.clear()
        gate.touch()
        first.send_signal(signal.SIGTERM)
        await eventually(lambda: list(spool.glob("*/*.reports")), 15)
    async with worker(database_url, tmp_path, "second"):
        row = await finished(db, id, 60)
    assert (row["status"], row["result_data"], row["attempts"]) == ("Complete", "seen", 0)


async def test_a_killed_workers_task_runs_again_elsewhere(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    gate = tmp_path / "gate"
    async with worker(database_url, tmp_path, "first") as first:
        id = await enqueue(db, "wait_for", {"path": str(gate)})
        await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
        first.kill()
        await first.wait()
    gate.touch()

    async def rescued() -> bool:
        return (await db.workers.rescue())["tasks_rescued"] == 1

    await eventually(rescued, 30)
    async with worker(database_url, tmp_path, "second"):
        row = await finished(db, id, 60)
    assert (row["status"], row["attempts"], row["worker_id"]) == ("Complete", 1, "second")
    assert [a["outcome"] for a in await db.tasks.attempts(id)] == ["lost", "complete"]


async def test_a_worker_lives_through_a_killed_database(
    tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    server = EmbeddedServer(tmp_path / "server", settings={"fsync": "off"})
    url = await asyncio.to_thread(server.acquire)
    try:
        await migrate(url)
        gate = tmp_path / "gate"
        async with worker(url, tmp_path), await Database.open(url) as db:
            id = await enqueue(db, "wait_for", {"path": str(gate)})
            await eventually(lambda: (tmp_path / "gate.started").exists(), 60)
            layout = Layout(tmp_path / "server")
            state = layout.read_state()
            assert state is not None
            psutil.Process(state.postmaster).kill()
            gate.touch()  # its result is ready while nobody can take it
            # A backend of the dead server may answer for a moment: first the new one.
            await eventually(lambda: layout.read_state() not in (None, state), 60)

            async def answers() -> bool:
                try:
                    return bool(await db.fetch("SELECT 1"))
                except Exception:
                    return False

            await eventually(answers, 60)
            row = await finished(db, id, 60)
            assert (row["status"], row["result_data"], row["attempts"]) == ("Complete", "seen", 0)
            assert (await finished(db, await enqueue(db, "echo", {"text": "on"}), 60))["result_data"] == "on"
    finally:
        server.release()


@needs_pooler
async def test_polling_works_through_a_transaction_pooler(
    db: Database, database_url: str, tmp_path: Path
) -> None:
    env = {"SHIFTBOSS_DATABASE_POOLED": "true", "SHIFTBOSS_WORKER_LISTEN": "false"}
    # One connection of the two is the leader's, for as long as it leads.
    async with pooler(database_url) as pooled, worker(pooled, tmp_path, **env):
        made = await db.tasks.enqueue([NewTask(task_type="echo", params={"text": str(n)}) for n in range(30)])
        rows = [await finished(db, task.id, 60) for task in made]
    assert {row["result_data"] for row in rows} == {str(n) for n in range(30)}


async def test_a_missing_module_is_a_clear_error(tmp_path: Path) -> None:
    for target, word in [
        ("nowhere:app", "no module"),
        ("tests.worker.sample:nope", "has no"),
        ("plain", "module:name"),
    ]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shiftboss", "worker", target,
            stderr=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
            env={**os.environ, "SHIFTBOSS_DATA_DIR": str(tmp_path)},
        )  # fmt: skip
        _, error = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 2
        assert word in error.decode()
        assert "Traceback" not in error.decode()


async def test_an_idle_worker_is_small(
    db: Database, database_url: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    async with worker(database_url, tmp_path) as process:
        await finished(db, await enqueue(db, "echo", {"text": "x"}, timeout=timedelta(seconds=60)), 60)
        memory = psutil.Process(process.pid).memory_info().rss / 1024 / 1024
    assert memory < 80
