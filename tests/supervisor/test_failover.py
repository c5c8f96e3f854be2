"""A lost primary, with and without its last commits, with a queue and with a whole fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shiftboss.db import Database
from shiftboss.db.lease import Lease
from shiftboss.db.migrate import migrate
from shiftboss.leader.duties import candidate
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from tests.replicas import Pair, pair
from tests.supervisor.conftest import Supervise, enqueue, statuses

TASKS = 50
HANGING = """
SELECT query FROM pg_stat_activity WHERE datname = 'app' AND state LIKE 'idle in transaction%'
AND state_change < clock_timestamp() - interval '1 second'
"""


@pytest.fixture
def replicas() -> Iterator[Pair]:
    with pair() as made:
        yield made


@pytest.fixture
def database_url(replicas: Pair) -> str:
    """A migrated database on whichever of the two servers takes writes."""
    asyncio.run(migrate(replicas.url))
    replicas.follow()
    return replicas.url


async def back(db: Database) -> bool:
    """Whether the pool has found the new primary; connections to the old one fail once each."""
    try:
        return bool(await db.fetch("SELECT 1"))
    except DatabaseUnavailable:
        return False


async def test_a_lease_that_a_failover_lost_is_never_given_again(
    replicas: Pair, db: Database, eventually: Any
) -> None:
    ids = [made.id for made in await db.tasks.enqueue([NewTask(task_type="t") for _ in range(TASKS)])]
    office = Lease(db, "office", 60.0, {})
    replicas.follow()
    replicas.cut()
    assert await office.acquire()
    before = {task.id: task.lease for task in await db.tasks.claim("old", TASKS)}
    replicas.fail_over()
    await eventually(lambda: back(db), timeout=30)

    after = {task.id: task.lease for task in await db.tasks.claim("new", TASKS)}
    assert before.keys() == after.keys() == set(ids)
    assert not set(before.values()) & set(after.values())
    stale = await db.tasks.complete(list(before.items()), [b'"old"'] * TASKS)
    assert sorted(stale) == sorted(ids), "the attempts are another worker's now"
    stale = await db.tasks.progress(list(before.items()), [50] * TASKS, [None] * TASKS)
    assert sorted(stale) == sorted(ids)
    assert await db.tasks.complete(list(after.items()), [b'"new"'] * TASKS) == []
    rows = await db.fetch("SELECT status, result_data, attempts FROM tasks")
    assert rows == [{"status": "Complete", "result_data": "new", "attempts": 0}] * TASKS
    with pytest.raises(DatabaseError, match="does not hold"):
        await db.under(office).execute("SELECT shiftboss.note('x')")
    await office.release()


async def test_a_fleet_survives_a_failover_that_lost_its_last_commits(
    replicas: Pair, db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    kept, lost = tmp_path / "kept", tmp_path / "lost"

    async def running(count: int) -> bool:
        return len(await db.fetch("SELECT FROM tasks WHERE status = 'In Progress'")) == count

    async def all_healthy() -> bool:
        return set((await statuses(db)).values()) == {"healthy"}

    async with supervise({"q": 2}), candidate(db, Settings.load()) as leader:
        await eventually(all_healthy, timeout=60)
        await eventually(lambda: leader.leading)
        pids = {row["pid"] for row in await db.health.get_all_workers()}
        first = await enqueue(db, "wait_for", path=str(kept))
        await eventually(lambda: running(1))
        second = await enqueue(db, "wait_for", path=str(lost))
        replicas.follow()
        replicas.cut()
        await db.tasks.enqueue([NewTask(task_type="nothing", queue="q") for _ in range(TASKS)])
        await eventually(lambda: running(2))
        replicas.fail_over()
        more = await eventually(lambda: some(db), timeout=30)
        kept.touch()
        lost.touch()

        ids = [first, second, *more]
        await eventually(lambda: complete(db, ids), timeout=60)
        await eventually(all_healthy)
        await eventually(lambda: leader.leading)
        assert {row["pid"] for row in await db.health.get_all_workers()} == pids, "no process had to die"
        assert await db.fetch("SELECT attempts, lease FROM tasks WHERE attempts > 0") == []
        assert replicas.standby.ask(HANGING) == []


async def some(db: Database) -> list[UUID]:
    """More tasks, once there is a primary to take them."""
    return await enqueue_many(db) if await back(db) else []


async def enqueue_many(db: Database) -> list[UUID]:
    made = await db.tasks.enqueue([NewTask(task_type="nothing", queue="q") for _ in range(TASKS)])
    return [task.id for task in made]


async def running(db: Database, id: UUID) -> bool:
    row = await db.tasks.get(id)
    return row is not None and row["status"] == "In Progress"


async def complete(db: Database, ids: list[UUID]) -> bool:
    rows = await db.fetch("SELECT status FROM tasks WHERE id = ANY (%s)", [ids])
    return [row["status"] for row in rows] == ["Complete"] * len(ids)


async def test_a_frozen_primary_holds_nobody_up(
    replicas: Pair, db: Database, supervise: Supervise, eventually: Any, tmp_path: Path
) -> None:
    """Its connections stay open and get no answer; those who wait on them move to the new primary."""
    held = tmp_path / "held"
    async with supervise({"q": 2}), candidate(db, Settings.load()) as leader:
        task = await enqueue(db, "wait_for", path=str(held))
        await eventually(lambda: running(db, task), timeout=60)
        pids = {row["pid"] for row in await db.health.get_all_workers()}
        await enqueue_many(db)
        replicas.follow()
        replicas.primary.freeze()
        held.touch()
        waiting = asyncio.create_task(enqueue_many(db))
        replicas.promote()
        more = await eventually(lambda: some(db), timeout=40)
        await eventually(lambda: complete(db, [task, *more]), timeout=60)
        with pytest.raises(DatabaseUnavailable):
            await waiting
        await eventually(lambda: leader.leading, timeout=30)
        assert {row["pid"] for row in await db.health.get_all_workers()} == pids, "no process had to die"


async def test_a_synchronous_standby_loses_nothing_that_was_confirmed(
    replicas: Pair, db: Database, eventually: Any
) -> None:
    replicas.synchronous()
    made: list[UUID] = []
    done: list[UUID] = []

    async def feed() -> None:
        while True:
            made.extend(task.id for task in await db.tasks.enqueue([NewTask(task_type="t")] * 5))
            tasks = await db.tasks.claim("w", 4)
            assert (
                await db.tasks.complete([(task.id, task.lease) for task in tasks], [None] * len(tasks)) == []
            )
            done.extend(task.id for task in tasks)

    feeding = asyncio.create_task(feed())
    await eventually(lambda: len(done) >= 4 * TASKS, timeout=30)
    await asyncio.to_thread(replicas.fail_over)
    with pytest.raises(DatabaseUnavailable):
        await feeding
    await eventually(lambda: back(db), timeout=30)
    there = {row["id"]: row["status"] for row in await db.fetch("SELECT id, status FROM tasks")}
    assert not set(made) - there.keys()
    assert {there[id] for id in done} == {"Complete"}


async def test_a_synchronous_standby_that_is_stuck_delays_nobody_who_does_not_wait_for_it(
    replicas: Pair, db: Database, eventually: Any
) -> None:
    """A commit that notifies holds a lock of the whole server until the standby answers."""
    await db.execute("SELECT shiftboss.arm()")  # as a worker that falls asleep, so that enqueues notify
    replicas.synchronous()
    replicas.standby.freeze()
    waiting = asyncio.create_task(db.tasks.enqueue([NewTask(task_type="t")]))
    stuck = """SELECT 1 FROM pg_stat_activity
        WHERE wait_event = 'SyncRep' AND state_change < clock_timestamp() - interval '50 ms'"""
    await eventually(lambda: replicas.primary.ask(stuck), timeout=30)
    async with asyncio.timeout(30), db.transaction() as conn:
        await conn.execute("SET LOCAL synchronous_commit = local")
        await db.tasks.enqueue([NewTask(task_type="t")], conn)
    assert not waiting.done()
    replicas.standby.thaw()
    await waiting


async def test_a_synchronous_standby_that_is_away_delays_work_and_loses_none(
    replicas: Pair, db: Database, supervise: Supervise, eventually: Any
) -> None:
    """A commit then waits for as long as the standby is away; neither a process nor an attempt is lost."""
    replicas.synchronous()
    async with supervise({"q": 1}):
        task = await enqueue(db, "nothing")
        await eventually(lambda: complete(db, [task]), timeout=60)
        pids = {row["pid"] for row in await db.health.get_all_workers()}
        replicas.standby.kill()
        late = asyncio.create_task(enqueue(db, "nothing"))
        await eventually(
            lambda: replicas.primary.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        )
        assert not late.done()
        replicas.standby.start()
        await eventually(lambda: complete_late(db, late), timeout=60)
        assert {row["pid"] for row in await db.health.get_all_workers()} == pids


async def complete_late(db: Database, late: asyncio.Task[UUID]) -> bool:
    return late.done() and await complete(db, [late.result()])
