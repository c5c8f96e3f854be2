"""Supervisors: how they stop, die and are replaced, other supervisors, and orders to them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from shiftboss.db import Database
from shiftboss.lifecycle.processes import identity
from shiftboss.model.errors import UsageError
from shiftboss.worker.slot import SlotSpec
from tests.supervisor.conftest import (
    SLOT,
    Supervise,
    ended,
    enqueue,
    kinds,
    row_of,
    script_command,
    status_of,
    statuses,
)

SLEEP = script_command("exec sleep 600")


async def shiftboss(*words: str) -> str:
    """Run a command line; what it printed. Fails if it did."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "shiftboss",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@asynccontextmanager
async def supervise_command(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = ["supervise", "tests.supervisor.app:app", "--log-level", "warning", *words]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "shiftboss", *command)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def pids(db: Database) -> list[int]:
    return [row["pid"] for row in await db.health.get_all_workers() if row["pid"] is not None]


async def test_sigterm_lets_the_task_finish_and_the_rows_go(
    db: Database, worker_environment: None, eventually: Any, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with supervise_command("--queue", "q=1") as process:
        await eventually(lambda: status_of(db, "healthy"), timeout=60)
        task = await enqueue(db, "wait_for", path=str(gate))
        await eventually(lambda: has_job(db))
        process.send_signal(signal.SIGTERM)
        await eventually(lambda: status_of(db, "stopping"))
        assert process.returncode is None
        gate.touch()
        assert await asyncio.wait_for(process.wait(), 20) == 0
    done = await ended(db, task)
    assert done is not None
    assert (done["status"], done["attempts"]) == ("Complete", 0)
    assert await statuses(db) == {}
    assert await db.fetch("SELECT * FROM shiftboss.supervisors") == []


async def has_job(db: Database) -> bool:
    return (await row_of(db, SLOT))["current_job"] is not None


async def test_a_killed_supervisor_leaves_no_orphans_and_its_heir_takes_the_slots_over(
    db: Database,
    worker_environment: None,
    supervise: Supervise,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SHIFTBOSS_SUPERVISOR_STOP_SECONDS", "2")
    async with supervise_command("--queue", "q=1", "--host", "here") as process:
        await eventually(lambda: status_of(db, "healthy"), timeout=60)
        await enqueue(db, "block")  # this worker's event loop hangs: it cannot even read that it is alone
        await eventually(lambda: has_task(db))
        [worker] = await pids(db)
        process.kill()
        await eventually(lambda: identity(worker) is None, timeout=10)
    created = (await row_of(db, SLOT))["created_at"]
    async with supervise({"q": 1}, SLEEP):
        await eventually(lambda: status_of(db, "starting"))
        await eventually(lambda: pids(db))
        row = await row_of(db, SLOT)
        assert (row["restart_count"], row["created_at"]) == (1, created)
        [task] = await db.fetch("SELECT status, attempts, crashes FROM tasks")
        assert task == {"status": "Queued", "attempts": 1, "crashes": 0}
    assert await statuses(db) == {}


async def has_task(db: Database) -> bool:
    return bool(await db.fetch("SELECT FROM tasks WHERE status = 'In Progress'"))


async def test_an_heir_ends_what_is_left_but_never_a_stranger_with_a_used_pid(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    """A reused pid looks alive; only pid and start time together are the same process."""
    ours = (await db.installation.own()).serves
    stranger, left = sleeper(ours), sleeper(ours)
    try:
        await left_behind(db, stranger, f"{stranger.pid}:1:long-ago")
        await left_behind(db, left, identity(left.pid))
        async with supervise({"q": 2}, SLEEP):
            await eventually(lambda: all_restarted(db))
            assert left.wait(timeout=5) == -signal.SIGTERM
            assert stranger.poll() is None
    finally:
        for process in (stranger, left):
            process.kill()
            process.wait()


async def test_a_supervisor_leaves_the_workers_of_another_fleet_or_server_alone(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    """In a copy of a database the rows of `health` name the original's live workers, pid and start time."""
    own = await db.installation.own()
    copied = own._replace(id=uuid4())
    elsewhere = own._replace(server="192.0.2.1:5432 192.0.2.1:5432")
    others = [sleeper(copied.serves), sleeper(elsewhere.serves), sleeper(""), sleeper(None)]
    try:
        for process in others:
            await left_behind(db, process, identity(process.pid))
        async with supervise({"q": 4}, SLEEP):
            await eventually(lambda: all_restarted(db), timeout=30)
            assert [process.poll() for process in others] == [None] * 4
        assert [process.poll() for process in others] == [None] * 4
    finally:
        for process in others:
            process.kill()
            process.wait()


def sleeper(serves: str | None) -> subprocess.Popen[bytes]:
    """A process as a supervisor of what it `serves` starts it; with None, as anybody does."""
    spec = SlotSpec(component="c", host="h", lifeline=0, words=0, grace=1.0, serves=serves or "")
    env = os.environ | ({} if serves is None else spec.variable())
    return subprocess.Popen(["sleep", "600"], start_new_session=True, env=env)


async def left_behind(db: Database, process: subprocess.Popen[bytes], name: str | None) -> None:
    """A slot whose row says that this process is in it."""
    slot = await db.health.open_slot("here", "q")
    await db.health.name_process(slot, process.pid, name)
    await db.health.update_heartbeat(slot)


async def all_restarted(db: Database) -> bool:
    rows = await db.health.get_all_workers()
    return {row["restart_count"] for row in rows} == {1}


async def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{child.pid}").exists()
    assert identity(child.pid) is None
    child.wait()
    mine = identity(os.getpid())
    assert mine is not None
    assert mine == identity(os.getpid())


async def test_hosts_share_a_database_and_leave_each_other_alone(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 2}, SLEEP, host="a"):
        async with supervise({"q": 2}, SLEEP, host="b"):
            await eventually(lambda: many(pids(db), 4))
            hosts = {row["component"]: row["host"] for row in await db.health.slots()}
            assert sorted(hosts) == [f"worker:q:{n}" for n in range(4)]
            theirs = {slot: await row_of(db, slot) for slot, host in hosts.items() if host == "a"}
            mine = next(slot for slot, host in hosts.items() if host == "b")
            before = (await row_of(db, mine))["pid"]
            await db.health.restart_workers([mine])
            await eventually(lambda: pid_changed(db, mine, before))
            with pytest.raises(UsageError, match="already running"):
                async with supervise({"q": 1}, SLEEP, host="b"):
                    pass
        left = await db.health.get_all_workers()
        assert {row["component"] for row in left} == set(theirs)
        for row in left:
            assert row["pid"] == theirs[row["component"]]["pid"]


async def test_a_lease_that_a_failover_lost_is_taken_again(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 1}, SLEEP) as supervisor:
        before = await eventually(lambda: pids(db))
        await db.execute("DELETE FROM shiftboss.leases")
        await eventually(db.leases.all)
        await db.health.set_slots("q", 2)
        await eventually(lambda: many(pids(db), 2))
        assert set(before) < set(await pids(db))
        assert supervisor.running


async def test_a_supervisor_that_was_replaced_stops_and_leaves_the_rows_to_its_successor(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 1}, SLEEP) as supervisor:
        [pid] = await eventually(lambda: pids(db))
        await db.execute(
            "UPDATE shiftboss.leases SET token = gen_random_uuid(), holder = '{}', duration = '1 hour',"
            " expires_at = now() + interval '30 minutes'"
        )
        await eventually(lambda: not supervisor.running, timeout=30)
        assert identity(pid) is None
    assert await pids(db) == [pid]
    assert await db.fetch("SELECT host FROM shiftboss.supervisors") == [{"host": "here"}]


async def many(found: Any, count: int) -> bool:
    return len(await found) == count


async def pid_changed(db: Database, slot: str, before: int) -> bool:
    row = await db.health.get_worker(slot)
    return row is not None and row["pid"] not in (None, before)


async def test_slots_come_and_go_while_running(db: Database, supervise: Supervise, eventually: Any) -> None:
    async with supervise({"q": 1, "r": 1}, SLEEP, check_seconds=30):
        await eventually(lambda: many(pids(db), 2))
        [kept] = [row["pid"] for row in await db.health.get_all_workers() if row["component"] == SLOT]
        assert await shiftboss("scale", "q=3", "r=0") == "q: 3 on here\nr: 0 on here\n"
        await eventually(lambda: names(db, ["worker:q:0", "worker:q:1", "worker:q:2"]))
        await db.health.set_slots("q", 1)
        await eventually(lambda: names(db, [SLOT]))
        assert await pids(db) == [kept]
        assert (await db.health.metrics())["crashes_total"] == 0


async def names(db: Database, wanted: list[str]) -> bool:
    return sorted(await statuses(db)) == wanted and len(await pids(db)) == len(wanted)


async def test_orders_by_the_command_line(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    """Pause: the task in hand is finished, the next one waits. Restart: a new process, still paused."""
    gate = tmp_path / "gate"
    async with supervise({"q": 1}, start_seconds=60):
        await eventually(lambda: status_of(db, "healthy"), timeout=60)
        running = await enqueue(db, "wait_for", path=str(gate))
        await eventually(lambda: has_job(db))
        assert await shiftboss("pause", SLOT) == f"{SLOT} paused\n"
        waiting = await enqueue(db, "nothing")
        gate.touch()
        await eventually(lambda: ended(db, running))
        old = (await row_of(db, SLOT))["pid"]
        assert "restarts it" in await shiftboss("restart", "--queue", "q")
        await eventually(lambda: pid_changed(db, SLOT, old))
        await eventually(lambda: status_of(db, "healthy"), timeout=60)
        row = await row_of(db, SLOT)
        assert row["details_json"]["paused"] is True
        assert (row["restart_count"], row["restart_ordered"]) == (0, False)
        task = await db.tasks.get(waiting)
        assert task is not None
        assert task["status"] == "Queued"
        assert f"{SLOT}\there\thealthy, paused\t{row['pid']}" in await shiftboss("slots")
        await shiftboss("resume", "--all")
        await eventually(lambda: ended(db, waiting))
        events = await shiftboss("events", "--component", SLOT)
        for kind in ("slot.paused", "slot.restart_ordered", "slot.stopping", "slot.healthy", "slot.resumed"):
            assert kind in events


async def test_events_can_be_followed(db: Database, worker_environment: None) -> None:
    await db.events.note("before", component=SLOT)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shiftboss", "events", "--follow", "--json"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert b'"before"' in await process.stdout.readline()
        for number in range(3):
            await db.events.note(f"event{number}", component=SLOT, details={"n": number})
            line = await process.stdout.readline()
            assert f'"event{number}"'.encode() in line
    finally:
        process.kill()
        await process.wait()


@pytest.mark.serial
async def test_fifty_slots(db: Database, supervise: Supervise, eventually: Any) -> None:
    """All are up in no time; half of them die at once and are seen dead within a second."""
    async with supervise({"q": 50}, SLEEP, restart_delay_seconds=60):
        await eventually(lambda: many(pids(db), 50), timeout=30)
        for pid in sorted(await pids(db))[:25]:
            os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        await eventually(lambda: many(kinds(db, "slot.crashed"), 25))
        assert time.monotonic() - began < 3.0  # a second on a quiet machine
        assert len(await pids(db)) == 25
    assert await statuses(db) == {}
