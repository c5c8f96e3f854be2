"""There is one leader at a time, and it performs its duties."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.db.lease import Lease
from shiftboss.leader.duties import candidate
from shiftboss.leader.election import Duty, Leader, leadership
from shiftboss.leader.pruner import Pruner
from shiftboss.leader.rescuer import Rescuer
from shiftboss.model.errors import DatabaseError
from shiftboss.model.settings import LeaderSettings, Settings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from tests.pooler import needs_pooler, pooler

SCRIPT = """
import asyncio, sys
from shiftboss.leader.election import Duty, Leader, leadership
from shiftboss.db import Database

async def main():
    async with await Database.open(sys.argv[1]) as db:
        async def act():
            print("acting", flush=True)
        lease = leadership(db, 2.0, "first")
        async with Leader(lease, [Duty("act", 0.05, act)], every=0.1) as leader:
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


def standing(db: Database, stage: Stage, name: str, seconds: float = 2.0) -> Leader:
    return Leader(leadership(db, seconds, name), [stage.duty(name)], every=0.1)


async def elected(db: Database) -> list[dict[str, Any]]:
    events = await db.events.latest(kind="leader.elected")
    return [event["details"] for event in reversed(events)]


async def test_one_leads_and_the_other_takes_over_when_it_stops(db: Database, eventually: Any) -> None:
    stage = Stage()
    first, second = standing(db, stage, "first", 60), standing(db, stage, "second", 60)
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
    assert [who["name"] for who in await elected(db)] == ["first", "second"]
    assert all(who["pid"] == os.getpid() and who["host"] for who in await elected(db))


async def test_a_leader_whose_lease_is_anothers_stops_acting(db: Database, eventually: Any) -> None:
    stage = Stage()
    async with standing(db, stage, "a") as a, standing(db, stage, "b") as b:
        for _ in range(3):
            await eventually(lambda: a.leading != b.leading)
            seen = len(stage.acts)
            await eventually(lambda seen=seen: len(stage.acts) > seen + 3)
            former = a if a.leading else b
            # as after a failover to a server that never heard of this term
            assert await db.execute("UPDATE shiftboss.leases SET token = gen_random_uuid()")
            await eventually(lambda former=former: not former.leading)
            await db.execute("UPDATE shiftboss.leases SET expires_at = now() - interval '1 second'")


async def test_a_former_leader_changes_nothing(db: Database) -> None:
    """Its duties are refused by the database, each one, though it still believes that it leads."""
    former, heir = leadership(db, 3600, "former"), leadership(db, 3600, "heir")
    assert await former.acquire()
    await _old_history(db)
    await db.execute("UPDATE shiftboss.leases SET expires_at = now() - interval '1 second'")
    assert await heir.acquire()
    assert former.held
    for duty in candidate(db, Settings())._duties:  # one that was never elected
        with pytest.raises(DatabaseError, match="does not hold"):
            await duty.call()
    for duty in Pruner(db.under(former)).duties() + Rescuer(db.under(former)).duties():
        with pytest.raises(DatabaseError, match="does not hold"):
            await duty.call()
    assert len(await db.fetch("SELECT FROM tasks")) == 3
    assert await Pruner(db.under(heir)).prune() == 2
    await heir.release()
    await former.release()


@needs_pooler
async def test_leaders_behind_a_transaction_pooler(
    db: Database, database_url: str, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one connection for all of them; and nobody keeps it idle in a transaction."""
    monkeypatch.setenv("SHIFTBOSS_DATABASE_POOLED", "true")
    stage = Stage()
    async with pooler(database_url, size=1) as url, await Database.open(url) as through:
        leases = [leadership(through, 2.0, name) for name in ("a", "b")]
        async with Leader(leases[0], _duties(through, leases[0], stage), every=0.1) as a:
            await eventually(lambda: a.leading)
            async with Leader(leases[1], _duties(through, leases[1], stage), every=0.1) as b:
                await eventually(lambda: len(stage.acts) > 20)
                assert not b.leading
                await a.stop()
                await eventually(lambda: b.leading)
    assert [who["name"] for who in await elected(db)] == ["a", "b"]


def _duties(db: Database, lease: Lease, stage: Stage) -> list[Duty]:
    fenced = db.under(lease)
    return [stage.duty(str(lease.name)), Duty("note", 0.02, lambda: fenced.events.note("duty"))]


async def test_short_timeouts_of_the_server_cause_no_election(
    db: Database, database_url: str, eventually: Any
) -> None:
    name = database_url.rpartition("/")[2]
    await db.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '100ms'")
    [version] = await db.fetch("SELECT current_setting('server_version_num')::int AS n")
    if version["n"] >= 170000:
        await db.execute(f"ALTER DATABASE {name} SET transaction_timeout = '300ms'")
    stage = Stage()
    async with await Database.open(database_url) as strict, standing(strict, stage, "a", 1.0) as a:
        await eventually(lambda: a.leading)
        async with standing(strict, stage, "b", 1.0):
            await eventually(lambda: len(stage.acts) > 100)
    assert [who["name"] for who in await elected(db)][:1] == ["a"]
    assert set(stage.acts) == {"a"}


@pytest.mark.serial
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
        async with standing(db, stage, "heir") as heir:
            assert not heir.leading
            os.kill(process.pid, signal.SIGKILL)
            began = time.monotonic()
            await eventually(lambda: stage.acts)
            assert time.monotonic() - began < 5
            assert [who["name"] for who in await elected(db)] == ["first", "heir"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_duty_that_fails_does_not_hinder_the_others(db: Database, eventually: Any) -> None:
    stage = Stage()

    async def fail() -> None:
        raise RuntimeError("broken")

    duties = [Duty("broken", 0.01, fail), stage.duty("good")]
    async with Leader(leadership(db, 2.0), duties, every=0.1):
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
    await db.execute(
        "UPDATE workers SET (lease_expires_at, last_heartbeat)"
        " = (now() - interval '1 minute', now() - interval '1 minute')"
    )
    assert await rescuer.rescue() == 0
    ahead = 2.0
    assert await rescuer.rescue() == 1
    # the database's clock jumps against ours: leases are judged only after workers had time to beat
    await db.workers.register(Member(id="w", queues=["q"], lease_seconds=0.1))
    assert await db.tasks.claim("w")
    await db.execute(
        "UPDATE workers SET (lease_expires_at, last_heartbeat)"
        " = (now() - interval '1 minute', now() - interval '1 minute')"
    )
    ahead = 100.0
    assert await rescuer.rescue() == 0
    ahead = 102.0
    assert await rescuer.rescue() == 1


async def _old_history(db: Database) -> None:
    """Three tasks, two of which ended long ago."""
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(3)])
    await db.execute(
        "UPDATE tasks SET status = 'Complete', generation_processed_at = now() - interval '8 days'"
        " WHERE id IN (SELECT id FROM tasks LIMIT 2)"
    )


async def test_old_history_goes_and_new_stays(db: Database) -> None:
    await _old_history(db)
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
    assert [duty.name for duty in pruner.duties()] == ["prune", "fold", "tidy"]
