"""Rules of the rescuer and of blame that no other test would miss. Each was found by a mutant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from tests.queue.test_blame import SUPERVISED
from tests.queue.test_claim_rules import holding, impatient
from tests.queue.test_queue import enqueue
from tests.queue.test_sessions import _has, array, in_a_session
from tests.queue.test_small_rules import status

RESCUE = "SELECT workers_lost, tasks_rescued, tasks_expired FROM shiftboss.rescue()"


@pytest.mark.session
@pytest.mark.parametrize(
    ("locked", "found"),
    [
        ("SELECT FROM tasks WHERE task_type = 'none' FOR UPDATE", (1, 2, 2)),
        ("SELECT FROM workers FOR UPDATE", (0, 2, 2)),
        ("SELECT FROM tasks WHERE status = 'In Progress' LIMIT 1 FOR UPDATE", (1, 1, 2)),
        ("SELECT FROM tasks WHERE status = 'Queued' LIMIT 1 FOR UPDATE", (1, 2, 1)),
    ],
)
async def test_the_rescuer_waits_for_nobody(db: Database, locked: str, found: tuple[int, ...]) -> None:
    await db.workers.register(Member(id="w", incarnation=uuid4()))
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(2)])
    assert len(await db.tasks.claim("w", 2)) == 2
    soon = datetime.now(UTC) + timedelta(minutes=1)
    await db.tasks.enqueue([NewTask(task_type="t", deadline=soon) for _ in range(2)])
    await enqueue(db)  # has no deadline
    async with holding(db, locked):
        [row] = await impatient(db, RESCUE, later="1 hour")
    assert tuple(row.values()) == found


async def test_a_worker_whose_supervisor_lives_stays_active(db: Database) -> None:
    await db.workers.register(Member(id="w", incarnation=uuid4()))
    await db.execute(SUPERVISED)
    await db.execute("UPDATE shiftboss.supervisors SET last_seen = last_seen + 100")
    for later, lost in (("31 seconds", 0), ("62 seconds", 1)):
        assert [row["workers_lost"] for row in await impatient(db, RESCUE, later=later)] == [lost]


async def test_a_task_that_was_just_claimed_by_a_lost_worker_is_rescued(db: Database) -> None:
    await db.workers.register(Member(id="w", incarnation=uuid4()))
    await enqueue(db)
    await db.tasks.claim("w")
    await db.execute("UPDATE tasks SET generation_started_at = generation_started_at + interval '1 hour'")
    [row] = await impatient(db, RESCUE, later="1 hour")
    assert (row["workers_lost"], row["tasks_rescued"]) == (1, 1)


async def test_an_interruption_changes_no_earlier_attempt(db: Database) -> None:
    await db.workers.register(Member(id="w", incarnation=uuid4()))
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(2)])
    for task in await db.tasks.claim("w", 2):
        await db.tasks.fail([(task.id, task.lease)], ["boom"])
    await db.tasks.claim("w", 2)
    await db.workers.worker_died("w", "lost", "gone")
    past = await db.fetch("SELECT outcome FROM shiftboss.past_attempts ORDER BY ended_at")
    assert [row["outcome"] for row in past] == ["failed", "failed", "interrupted", "interrupted"]
    rows = await db.fetch("SELECT crashes, attempts FROM tasks")
    assert rows == [{"crashes": 1, "attempts": 1}] * 2


async def test_a_worker_with_one_task_has_lost_it_by_that_task(db: Database) -> None:
    await db.workers.register(Member(id="w", incarnation=uuid4()))
    await enqueue(db)
    await db.tasks.claim("w")
    await db.workers.worker_died("w", "lost", "gone")
    assert await db.fetch("SELECT attempts, crashes FROM tasks") == [{"attempts": 1, "crashes": 0}]
    assert await db.fetch("SELECT outcome FROM shiftboss.past_attempts") == [{"outcome": "lost"}]


@pytest.mark.session
async def test_descendants_are_locked_before_limits(
    db: Database, eventually: Callable[..., Awaitable[Any]]
) -> None:
    """All sessions lock in one order: otherwise the end of a worker could deadlock with a report."""
    await db.tasks.set_limit("task_type", "limited", max_per_key=5)
    guilty = await enqueue(db, max_attempts=1)
    child = await enqueue(db, task_type="child", depends_on=[guilty])
    await enqueue(db, task_type="limited", concurrency_key="k")
    leases = {task.id: task.lease for task in await db.tasks.claim("w", 2)}
    died = f"SELECT shiftboss.worker_died('w', 'crashed', 'x', {array(leases[guilty])})"
    async with holding(db, "SELECT FROM tasks WHERE id = %s FOR UPDATE", child):
        dying = asyncio.create_task(in_a_session(db, died))
        await eventually(lambda: _has(db, 1))
        await impatient(db, "SELECT FROM shiftboss.limits FOR UPDATE NOWAIT")
    await dying
    assert (await status(db, child))["status"] == "Cancelled"


async def test_forgotten_holds_are_mended_and_counted_among_many_tasks(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(30)])
    parent = await enqueue(db)
    held, forgotten = await enqueue(db, depends_on=[parent]), await enqueue(db, depends_on=[parent])
    await db.execute("DELETE FROM shiftboss.dependencies WHERE child_id = %s", [forgotten])
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(30)])
    assert await db.fetch("SELECT shiftboss.mend_holds(1) AS n") == [{"n": 1}]
    assert [(await status(db, id))["hold"] for id in (held, forgotten)] == ["dependency", None]
    assert await db.fetch("SELECT shiftboss.mend_holds(1) AS n") == [{"n": 0}]


async def test_parked_tasks_whose_limit_is_gone_are_freed(db: Database) -> None:
    await db.tasks.set_limit("task_type", "other", max_per_key=1)
    id = await enqueue(db, concurrency_key="k")
    await enqueue(db, task_type="a")  # sorts first, and was never parked
    await db.execute("UPDATE tasks SET hold = 'limit' WHERE id = %s", [id])
    await db.workers.rescue()
    assert (await status(db, id))["hold"] is None
