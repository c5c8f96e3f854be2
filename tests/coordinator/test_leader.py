"""One leader at a time, whatever happens to it; and what it does in office."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from shiftboss.coordinator.leader import Duty, Leader
from shiftboss.coordinator.pruner import Pruner
from shiftboss.coordinator.rescuer import Rescuer
from shiftboss.db import Database
from shiftboss.model.settings import LeaderSettings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member

SCRIPT = """
import asyncio, sys
from shiftboss.coordinator.leader import Duty, Leader
from shiftboss.db import Database

async def main():
    async with await Database.open(sys.argv[1]) as db:
        async def act():
            print("acting", flush=True)
        async with Leader(db, [Duty("act", 0.05, act)], every=0.1) as leader:
            await leader.wait()

asyncio.run(main())
"""


class Stage:
    """Notes who acts when, and whether two ever did at once."""

    def __init__(self) -> None:
        self.acts: list[str] = []
        self.acting = 0
        self.overlaps = 0

    def duty(self, name: str) -> Duty:
        async def act() -> None:
            self.acting += 1
            self.overlaps += self.acting > 1
            self.acts.append(name)
            try:
                await asyncio.sleep(0.01)
            finally:  # a leader that steps down ends its duties in the middle
                self.acting -= 1

        return Duty("act", 0.02, act)


async def test_one_leads_and_the_other_takes_over_when_it_stops(db: Database, eventually: Any) -> None:
    stage = Stage()
    first = Leader(db, [stage.duty("first")], every=0.1)
    second = Leader(db, [stage.duty("second")], every=0.1)
    async with first:
        await eventually(lambda: first.leading)
        async with second:
            await eventually(lambda: stage.acts.count("first") > 10)
            assert not second.leading
            assert "second" not in stage.acts
            await first.stop()
            await eventually(lambda: second.leading and "second" in stage.acts)
            assert not first.leading
    assert stage.overlaps == 0


async def test_a_leader_whose_session_is_cut_off_stops_acting(db: Database, eventually: Any) -> None:
    stage = Stage()
    async with Leader(db, [stage.duty("a")], every=0.1) as a, Leader(db, [stage.duty("b")], every=0.1) as b:
        for _ in range(5):
            await eventually(lambda: a.leading != b.leading)
            seen = len(stage.acts)
            await eventually(lambda seen=seen: len(stage.acts) > seen + 3)
            assert await db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
    assert stage.overlaps == 0


async def test_a_killed_leader_is_followed_within_seconds(
    db: Database, database_url: str, eventually: Any
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, database_url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        while await process.stdout.readline() != b"acting\n":
            pass
        stage = Stage()
        async with Leader(db, [stage.duty("heir")], every=0.1) as heir:
            assert not heir.leading
            os.kill(process.pid, signal.SIGKILL)
            began = time.monotonic()
            await eventually(lambda: stage.acts)
            assert time.monotonic() - began < 3
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_duty_that_fails_does_not_hinder_the_others(db: Database, eventually: Any) -> None:
    stage = Stage()

    async def fail() -> None:
        raise RuntimeError("broken")

    async with Leader(db, [Duty("broken", 0.01, fail), stage.duty("good")], every=0.1):
        await eventually(lambda: len(stage.acts) > 5)


async def test_silence_of_slot_and_supervisor_is_a_crash(db: Database) -> None:
    now = 0.0
    settings = LeaderSettings(crash_check_seconds=10, crash_timeout_seconds=30)
    rescuer = Rescuer(db, settings, clock=lambda: now)
    await db.health.begin_supervisor("a", 1, {})
    await db.health.begin_supervisor("dead", 1, {})
    watched = await db.health.open_slot("a", "q")
    orphan = await db.health.open_slot("dead", "q")
    await db.workers.register(Member(id=f"dead/{orphan}", queues=["q"]))
    await db.tasks.enqueue([NewTask(task_type="t", queue="q")])
    assert await db.tasks.claim(f"dead/{orphan}")
    found: list[str] = []
    for second in range(0, 50, 10):
        now = float(second)
        await db.health.survey("a")  # its supervisor lives, and answers for its slots
        found += await rescuer.crash_check()
        assert bool(found) == (second >= 30)
    assert found == [orphan]
    row = await db.health.get_worker(watched)
    assert row is not None
    assert row["status"] == "starting"
    [task] = await db.fetch("SELECT status, attempts, crashes FROM tasks")
    assert task == {"status": "Queued", "attempts": 1, "crashes": 0}


async def test_a_clock_that_jumps_kills_nobody(db: Database) -> None:
    now = 0.0
    rescuer = Rescuer(db, LeaderSettings(crash_check_seconds=10, crash_timeout_seconds=30), clock=lambda: now)
    slot = await db.health.open_slot("a", "q")
    for second, jump in ((10, 0), (20, 86400), (30, -86400), (40, 7 * 86400), (50, 0)):
        now = float(second)
        at = datetime.now(UTC) + timedelta(seconds=jump)
        async with db.transaction() as conn:
            await conn.execute("SELECT set_config('shiftboss.now', %s, true)", [at.isoformat()])
            await conn.execute("SELECT * FROM shiftboss.update_heartbeat(%s)", [slot])
        assert await rescuer.crash_check() == []
    now += 86400  # the leader itself was asleep for a day: nobody is judged by that
    assert await rescuer.crash_check() == []


async def test_lost_workers_are_rescued_but_not_at_first_sight(db: Database) -> None:
    ahead = 0.0
    rescuer = Rescuer(db, patience=1.0, clock=lambda: time.monotonic() + ahead)
    await db.workers.register(Member(id="w", queues=["q"], lease_seconds=0.1))
    await db.tasks.enqueue([NewTask(task_type="t", queue="q")])
    assert await db.tasks.claim("w")
    await db.execute("UPDATE workers SET lease_expires_at = now() - interval '1 minute'")
    assert await rescuer.rescue() == 0
    ahead = 2.0
    assert await rescuer.rescue() == 1
    # the database's clock jumps against ours: leases are judged only after workers had time to beat
    await db.workers.register(Member(id="w", queues=["q"], lease_seconds=0.1))
    assert await db.tasks.claim("w")
    await db.execute("UPDATE workers SET lease_expires_at = now() - interval '1 minute'")
    ahead = 100.0
    assert await rescuer.rescue() == 0
    ahead = 102.0
    assert await rescuer.rescue() == 1


async def test_old_history_goes_and_new_stays(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(3)])
    await db.execute(
        "UPDATE tasks SET status = 'Complete', generation_processed_at = now() - interval '8 days'"
        " WHERE id IN (SELECT id FROM tasks LIMIT 2)"
    )
    await db.events.note("old")
    await db.execute("UPDATE shiftboss.events SET at = now() - interval '31 days'")
    await db.events.note("new")
    await db.health.register_worker("worker:q:0", 1)
    await db.health.update_status("worker:q:0", "crashed")
    await db.execute("UPDATE health SET last_seen = last_seen - 31 * 86400")
    pruner = Pruner(db)
    assert await pruner.prune() == 2
    await pruner.tidy()
    assert "old" not in {event["kind"] for event in await db.events.latest()}
    assert "new" in {event["kind"] for event in await db.events.latest()}
    assert await db.health.get_all_workers() == []
    assert [duty.name for duty in pruner.duties()] == ["prune", "tidy"]
