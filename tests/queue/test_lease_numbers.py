"""A lease is a random number: a restored or rolled-back database never hands out one that is still held."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from tests.conftest import _fresh

MOST = 2**53 - 1


@pytest.mark.session  # a pooler keeps the database in use
async def test_a_restored_database_gives_another_lease_and_refuses_the_old_holder(
    db: Database, server_url: str
) -> None:
    await db.workers.register(Member(id="old", queues=["q"]))
    await db.workers.register(Member(id="new", queues=["q"]))
    await db.tasks.enqueue([NewTask(task_type="t", queue="q") for _ in range(20)])
    name = db.url.rpartition("/")[2]
    await db.close()  # nobody may use a database while it is copied; this is the moment of the backup
    with contextmanager(_fresh)(server_url, name) as restored:
        async with await Database.open(db.url) as before, await Database.open(restored) as after:
            held = [(task.id, task.lease) for task in await before.tasks.claim("old", 20)]
            given = {task.id: task.lease for task in await after.tasks.claim("new", 20)}
            assert len(held) == len(given) == 20
            assert not {lease for _, lease in held} & set(given.values())
            stale = await after.tasks.complete(held, [None] * 20)
            assert sorted(stale) == sorted(given)
            rows = await after.fetch("SELECT status, worker_id FROM tasks")
            assert {(row["status"], row["worker_id"]) for row in rows} == {("In Progress", "new")}


async def test_leases_fit_into_json_and_are_spread_over_all_of_53_bits(db: Database) -> None:
    await db.workers.register(Member(id="w", queues=["q"]))
    await db.tasks.enqueue([NewTask(task_type="t", queue="q") for _ in range(500)])
    leases = [task.lease for task in await db.tasks.claim("w", 500)]
    assert len(set(leases)) == 500
    assert all(0 <= lease <= MOST for lease in leases)
    for bit in range(53):
        ones = sum(lease >> bit & 1 for lease in leases)
        assert 150 < ones < 350  # nine standard deviations


async def test_every_way_to_a_task_gives_a_random_lease(db: Database) -> None:
    """Also one that setseed() cannot make repeat itself."""
    await db.workers.register(Member(id="w", queues=["q"]))
    made = await db.tasks.enqueue([NewTask(task_type="t", queue="q") for _ in range(3)])
    seen = set()
    for one in made:
        async with db.transaction() as conn:
            await conn.execute("SELECT setseed(0.5)")
            given = await conn.execute("SELECT lease FROM shiftboss.assign_many(%s, %s)", [[one.id], ["w"]])
            seen |= {row["lease"] for row in await given.fetchall()}
    [by_hand] = await db.tasks.enqueue([NewTask(task_type="t", queue="q")])
    await db.execute("UPDATE tasks SET status = 'In Progress' WHERE id = %s", [by_hand.id])
    [row] = await db.fetch("SELECT shiftboss.running_lease(%s) AS lease", [by_hand.id])
    seen.add(row["lease"])
    assert len(seen) == 4
    assert min(seen) > 2**32  # a sequence would begin at 1
    [sequence] = await db.fetch("SELECT is_called FROM shiftboss.lease_seq")
    assert not sequence["is_called"]
