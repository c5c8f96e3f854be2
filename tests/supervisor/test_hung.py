"""Processes that are alive but hang, grow or are old."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.lifecycle.processes import identity
from shiftboss.model.errors import DatabaseError
from shiftboss.model.slot import SilenceWatch
from tests.conftest import outage
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


@asynccontextmanager
async def beating(db: Database, *components: str, every: float = 0.05) -> AsyncIterator[None]:
    """Beats on behalf of processes that cannot: what the supervisor sees is the same."""

    async def beat() -> None:
        while True:
            for component in components:
                with suppress(DatabaseError):
                    if pid := await pid_in(db, component):
                        await db.health.update_heartbeat(component, pid=pid)
            await asyncio.sleep(every)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.serial
async def test_a_stopped_process_is_hung_and_ended_by_force(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    """SIGSTOP on a real worker with a task in hand; it does not even hear SIGTERM."""
    settings = {"timeout_seconds": 2.0, "kill_seconds": 0.2, "start_seconds": 60, "restart_delay_seconds": 60}
    async with supervise({"q": 1}, **settings):
        await eventually(lambda: status_of(db, "healthy"), timeout=60)
        task = await enqueue(db, "wait_for", path="/nonexistent")
        await eventually(lambda: has_job(db, task))
        pid = (await row_of(db, SLOT))["pid"]
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        await eventually(lambda: status_of(db, "crashed"))
        took = time.monotonic() - began
        assert took < 2.0 + 0.2 + 0.2 + 1.0  # timeout, one check, the wait after SIGTERM, and some slack
        assert identity(pid) is None
        row = await db.fetch_one(
            "SELECT outcome, error FROM shiftboss.past_attempts WHERE task_id = %s", [task]
        )
        assert row == {"outcome": "crashed", "error": "hung: no beat for 2 s"}


async def has_job(db: Database, task: Any) -> bool:
    return (await row_of(db, SLOT))["current_job"] == task


async def test_a_process_that_never_beats_is_ended(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 1}, SLEEP, start_seconds=0.5, restart_delay_seconds=30):
        await eventually(lambda: status_of(db, "crashed"))
        assert "no beat within 0.5 s of its start" in str(await row_of(db, SLOT))


async def test_who_is_marked_as_crashed_by_somebody_is_started_anew(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 1}, SLEEP):
        pid = await eventually(lambda: pid_in(db, SLOT))
        await db.health.update_status(SLOT, "crashed")
        await eventually(lambda: other_pid(db, SLOT, pid))
        assert identity(pid) is None
        assert (await row_of(db, SLOT))["restart_count"] == 1


async def pid_in(db: Database, component: str) -> int | None:
    row = await db.health.get_worker(component)
    return None if row is None else row["pid"]


async def other_pid(db: Database, component: str, pid: int) -> bool:
    return await pid_in(db, component) not in (None, pid)


@pytest.mark.session  # a pooler remembers an outage for longer
async def test_a_database_that_goes_away_starts_no_storm(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    """Away for longer than the timeout: nobody is called crashed or restarted. A real death is not forgotten."""
    quick = supervise({"q": 2}, SLEEP, timeout_seconds=2.0, check_seconds=0.05)
    slow = supervise({"real": 1}, host="there", start_seconds=60)
    async with quick as supervisor, slow, beating(db, "worker:q:0", "worker:q:1"):
        await eventually(lambda: all_are(db, "healthy", 3), timeout=60)
        before = {row["component"]: row["pid"] for row in await db.health.get_all_workers()}
        async with outage(db):
            os.kill(before["worker:q:1"], signal.SIGKILL)
            await asyncio.sleep(4.0)  # the time of the outage is the thing under test
            [living] = [slot for slot in supervisor.slots if slot.process and not slot.process.ended.done()]
            assert living.component == "worker:q:0"
        await eventually(lambda: other_pid(db, "worker:q:1", before["worker:q:1"]), timeout=20)
        await do_one(db, eventually, queue="real")
        rows = {row["component"]: row for row in await db.health.get_all_workers()}
        assert [rows[slot]["restart_count"] for slot in sorted(rows)] == [0, 1, 0]
        for slot in ("worker:q:0", "worker:real:0"):
            assert rows[slot]["pid"] == before[slot]


async def all_are(db: Database, status: str, count: int) -> bool:
    return list((await statuses(db)).values()) == [status] * count


def test_only_seen_silence_counts() -> None:
    watch = SilenceWatch(longest_step=2.0)
    assert watch.look({"a": 1}, 0.0) == {"a": 0.0}
    assert watch.look({"a": 1}, 1.0) == {"a": 1.0}
    assert watch.look({"a": 1, "b": 5}, 1000.0) == {"a": 3.0, "b": 0.0}  # asleep: two seconds at most
    assert watch.look({"a": -7}, 1001.0) == {"a": 0.0}  # any change is life, backwards too
    assert watch.look({"a": -7}, 900.0) == {"a": 0.0}
    assert watch.look({"a": -7}, 901.0) == {"a": 1.0}
    watch.blind()
    assert watch.look({"a": -7}, 902.0) == {"a": 0.0}


async def test_memory_over_the_limit_is_drained_and_replaced(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    command = script_command(
        f"test -e {tmp_path}/small && exec sleep 600; touch {tmp_path}/small;"
        " exec python3 -c 'x = b\"x\" * (120 << 20); import time; time.sleep(600)'"
    )
    async with supervise({"q": 1}, command, max_memory_mb=100):
        old = await eventually(lambda: pid_in(db, SLOT))
        async with beating(db, SLOT, "worker:q:1"):
            await eventually(lambda: identity(old) is None, timeout=20)
            await eventually(lambda: only(db, "worker:q:1"))
        [event] = await kinds(db, "slot.replaced")
        assert event["details"]["successor"] == "worker:q:1"
        assert "MB, more than 100 MB" in event["details"]["reason"]
        assert (await db.health.metrics())["crashes_total"] == 0


async def only(db: Database, component: str) -> bool:
    return await statuses(db) == {component: "healthy"}


async def test_an_old_process_is_replaced_without_losing_capacity(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    """After its third task the real worker still finishes a fourth one, while its successor already works."""
    gate = tmp_path / "gate"
    async with supervise({"q": 1}, max_tasks=3, start_seconds=60) as supervisor:
        await eventually(lambda: status_of(db, "healthy"), timeout=60)
        slow = await enqueue(db, "wait_for", path=str(gate))
        await eventually(lambda: has_job(db, slow))
        old = (await row_of(db, SLOT))["pid"]
        for _ in range(3):
            await do_one(db, eventually)
        await eventually(lambda: draining(db), timeout=30)
        assert await statuses(db) == {SLOT: "healthy", "worker:q:1": "healthy"}
        assert (await do_one(db, eventually))["result_data"] != old
        gate.touch()
        done = await eventually(lambda: ended(db, slow))
        assert (done["status"], done["attempts"]) == ("Complete", 0)
        await eventually(lambda: only(db, "worker:q:1"))
        await eventually(lambda: len(supervisor.slots) == 1)
        assert (await db.health.metrics())["crashes_total"] == 0
        assert (await row_of(db, "worker:q:1"))["restart_count"] == 0


async def do_one(db: Database, eventually: Any, queue: str = "q") -> dict[str, Any]:
    task = await enqueue(db, "nothing", queue=queue)
    done: dict[str, Any] = await eventually(lambda: ended(db, task), timeout=30)
    return done


async def draining(db: Database) -> bool:
    row = await db.workers.get(f"here/{SLOT}")
    return row is not None and row["draining"]
