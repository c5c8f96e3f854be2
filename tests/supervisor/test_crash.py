"""Processes that exit or crash, and their restarts."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.lifecycle.processes import identity
from shiftboss.model.errors import DatabaseError
from shiftboss.model.slot import RestartPolicy
from tests.conftest import admin
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
    worker_command,
)


async def all_healthy(db: Database, count: int) -> bool:
    return list((await statuses(db)).values()) == ["healthy"] * count


async def test_a_clean_life(db: Database, supervise: Supervise, eventually: Any) -> None:
    async with supervise({"q": 2}):
        await eventually(lambda: all_healthy(db, 2), timeout=30)
        task = await enqueue(db, "nothing")
        done = await eventually(lambda: ended(db, task))
        workers = await db.fetch("SELECT id FROM workers WHERE status = 'active' ORDER BY id")
        assert [row["id"] for row in workers] == ["here/worker:q:0", "here/worker:q:1"]
        pids = [row["pid"] for row in await db.health.get_all_workers()]
        assert done["result_data"] in pids
    assert await statuses(db) == {}
    assert [identity(pid) for pid in pids] == [None, None]


async def test_a_task_that_kills_its_worker_goes_back_at_once_and_is_poison_the_second_time(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 1}):
        await eventually(lambda: all_healthy(db, 1), timeout=30)
        task = await enqueue(db, "kill", number=signal.SIGKILL)
        done = await eventually(lambda: ended(db, task), timeout=30)
        assert done["status"] == "Failed"
        assert done["error_message"].startswith("poison")
        past = await db.fetch("SELECT outcome, error FROM shiftboss.past_attempts WHERE task_id = %s", [task])
        assert past == [{"outcome": "crashed", "error": "killed by SIGKILL"}] * 2
        # the pool goes on
        assert await eventually(lambda: all_healthy(db, 1), timeout=30)
        row = await row_of(db, SLOT)
        assert row["restart_count"] == 2
        assert (await db.health.metrics())["crashes_total"] == 2
    reasons = [event["details"].get("reason") for event in await kinds(db, "slot.crashed")]
    assert reasons == ["killed by SIGKILL"] * 2


@pytest.mark.serial
async def test_a_killed_process_is_seen_within_a_second(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    """Whatever the intervals: nothing waits for a check or a timeout here."""
    async with supervise({"q": 1}, script_command("sleep 600"), check_seconds=60, restart_delay_seconds=30):
        pid = await eventually(lambda: pid_of(db))
        os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        await eventually(lambda: status_of(db, "crashed"), timeout=5)
        assert time.monotonic() - began < 1.0


async def pid_of(db: Database, component: str = SLOT) -> int | None:
    row = await db.health.get_worker(component)
    return None if row is None else row["pid"]


async def test_an_import_error_says_what_it_was_and_after_the_limit_the_slot_is_failed(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    command = worker_command("tests.supervisor.broken:app")
    async with supervise({"q": 1}, command, restart_limit=1):
        await eventually(lambda: status_of(db, "failed"), timeout=60)
        row = await row_of(db, SLOT)
        assert row["restart_count"] == 1
        assert row["pid"] is None
        assert "no_such_module" in row["details_json"]["error_message"]
        assert "no_such_module" in row["details_json"]["error_message"]
        [alert] = [alert for alert in await db.health.alerts() if alert["alert"] == "worker_failed"]
        assert alert["component"] == SLOT


async def test_the_limit_and_the_only_way_out_of_failed(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    good = tmp_path / "good"
    starts = tmp_path / "starts"
    script = f"echo >> {starts}; test -e {good} && exec sleep 600; exit 3"
    async with supervise({"q": 1}, script_command(script), restart_delay_seconds=0.01):
        await eventually(lambda: status_of(db, "failed"))
        assert (await row_of(db, SLOT))["restart_count"] == 5
        assert len(starts.read_bytes()) == 6
        assert "5 restarts within 300 s; last: exited with status 3" in str(await row_of(db, SLOT))
        good.touch()
        [order] = await db.health.restart_workers([SLOT])
        assert order["ordered"]
        await eventually(lambda: status_of(db, "starting"))

        async def as_new() -> bool:
            row = await row_of(db, SLOT)
            return (row["restart_count"], row["restart_ordered"]) == (0, False)

        await eventually(as_new)
        await eventually(lambda: len(starts.read_bytes()) == 7)
    assert await statuses(db) == {}


async def test_the_restart_count_is_exact_over_random_crashes(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    """Deaths of all kinds in ten slots at once, while connections to the database break again and again."""
    starts, good = tmp_path / "starts", tmp_path / "good"
    starts.mkdir()
    script = f"""echo $$ >> {starts}/$0; test -e {good} && exec sleep 600
    case $(($$ % 4)) in 0) exit 0;; 1) exit 7;; 2) kill -9 $$;; 3) sleep 0.0$(($$ % 10)); kill -11 $$;; esac"""
    settings = {"restart_limit": 10**6, "restart_delay_seconds": 0.01, "restart_delay_max_seconds": 0.05}

    def started() -> dict[str, list[str]]:
        return {path.name: path.read_text().split() for path in starts.iterdir()}

    async def at_rest() -> Any:
        """All rows and the metrics, once every slot has the process that started last."""
        latest = {component: int(pids[-1]) for component, pids in started().items()}
        with suppress(DatabaseError):  # the pool may still hold connections that we have broken
            rows = await db.health.get_all_workers()
            metrics = await db.health.metrics()
            return latest == {row["component"]: row["pid"] for row in rows} and (rows, metrics)

    async with supervise({"q": 10}, script_command(script), check_seconds=0.05, **settings):
        for goal in range(10, 250, 10):
            await eventually(lambda goal=goal: sum(map(len, started().values())) >= goal, timeout=30)
            admin(
                db.url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE datname = '{db.url.rpartition('/')[2]}' AND random() < 0.2",
            )
        good.touch()
        rows, metrics = await eventually(at_rest, timeout=30)
        counts = {row["component"]: row["restart_count"] for row in rows}
        assert counts == {component: len(pids) - 1 for component, pids in started().items()}
        assert sum(counts.values()) >= 230
        assert metrics["restarts_total"] == sum(counts.values())


def test_the_backoff_doubles_to_its_cap_and_the_window_slides() -> None:
    policy = RestartPolicy(limit=100)
    middle = [policy.delay(n, lambda: 0.5) for n in range(8)]
    assert middle == [1, 2, 4, 8, 16, 32, 60, 60]
    jittered = {policy.delay(3, random.random) for _ in range(20)}
    assert len(jittered) > 10
    assert all(7.2 <= delay <= 8.8 for delay in jittered if delay is not None)
    assert RestartPolicy().delay(4) is not None
    assert RestartPolicy().delay(5) is None


async def test_a_fork_that_outlives_its_parent_is_ended(
    db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/fork; kill -9 $$"
    async with supervise({"q": 1}, script_command(script), restart_delay_seconds=30):
        await eventually(lambda: status_of(db, "crashed"))
        child = int((tmp_path / "fork").read_text())
        await eventually(lambda: identity(child) is None)


async def test_a_command_that_can_not_be_started_is_a_crash_with_its_reason(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 1}, lambda *_: ["/no/such/program"], restart_delay_seconds=30):
        await eventually(lambda: status_of(db, "crashed"))
        assert "cannot be started" in (await row_of(db, SLOT))["details_json"]["error_message"]
