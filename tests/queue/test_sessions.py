"""Two concurrent sessions on the same tasks and limits: nothing is overlooked, and they do not deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from shiftboss.db import Database
from shiftboss.db.connection import Connection
from shiftboss.model.task import NewTask, new_id
from tests.queue.test_queue import enqueue, status

pytestmark = pytest.mark.session  # each side of a crossing keeps a session of its own

Eventually = Callable[..., Awaitable[Any]]


def ids(count: int) -> list[UUID]:
    return sorted(new_id() for _ in range(count))


async def waiting(db: Database) -> int:
    """How many sessions wait for a lock."""
    rows = await db.fetch(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return len(rows)


async def crosswise(db: Database, eventually: Eventually, held: str, *calls: str) -> list[Any]:
    """Let the calls queue up, one after the other, behind somebody who holds the rows of `held`; then he lets go."""
    async with db.dedicated() as holder, holder.transaction():
        await holder.execute(held)
        running = []
        for number, call in enumerate(calls, 1):
            running.append(asyncio.create_task(in_a_session(db, call)))
            await eventually(lambda n=number: _has(db, n))
    return await asyncio.gather(*running)


async def _has(db: Database, count: int) -> bool:
    return await waiting(db) == count


async def in_a_session(db: Database, call: str) -> Any:
    async with db.dedicated() as conn:
        return await (await conn.execute(call)).fetchall()


def array(*values: UUID | int) -> str:
    kind = "uuid" if isinstance(values[0], UUID) else "bigint"
    return "ARRAY[" + ", ".join(f"'{value}'" for value in values) + f"]::{kind}[]"


async def claimed(db: Database, *wanted: UUID) -> str:
    """All tasks that can be had in the hands of one worker; the arguments of a report on the wanted ones."""
    await db.tasks.claim("w", 100)
    rows = {row["id"]: row["lease"] for row in await db.fetch("SELECT id, lease FROM tasks")}
    return f"{array(*wanted)}, {array(*(rows[id] for id in wanted))}"


async def test_a_cancel_that_meets_a_failing_task_is_not_lost(db: Database, eventually: Eventually) -> None:
    id = await enqueue(db)
    held = await claimed(db, id)
    async with db.dedicated() as worker, worker.transaction():
        await worker.execute(f"SELECT shiftboss.fail({held}, ARRAY['boom'])")
        cancel = asyncio.create_task(db.tasks.cancel([id]))
        await eventually(lambda: _has(db, 1))
    [came_to] = await cancel
    assert (came_to.status, came_to.cancelling) == ("Cancelled", False)


@pytest.mark.parametrize(
    "report",
    [
        "complete({}, NULL)",
        "fail({}, ARRAY['e', 'e'])",
        "defer({}, NULL, NULL)",
        "cancelled({})",
        "extend({}, '1 minute')",
    ],
)
async def test_a_batch_and_a_cancel_in_another_order(
    db: Database, eventually: Eventually, report: str
) -> None:
    a, b = ids(2)
    await db.tasks.enqueue([NewTask(task_type="t", id=id) for id in (a, b)])
    [[came_of_it], cancels] = await crosswise(
        db,
        eventually,
        f"SELECT FROM tasks WHERE id = '{b}' FOR UPDATE",
        f"SELECT shiftboss.{report} AS stale".format(await claimed(db, b, a)),
        f"SELECT * FROM shiftboss.cancel({array(a, b)})",
    )
    assert came_of_it["stale"] == []
    assert len(cancels) == 2


async def test_a_child_and_its_running_parent_are_cancelled_while_the_parent_ends(
    db: Database, eventually: Eventually
) -> None:
    child, parent = ids(2)
    await enqueue(db, id=parent)
    await enqueue(db, id=child, depends_on=[parent])
    held = await claimed(db, parent)
    await crosswise(
        db,
        eventually,
        f"SELECT FROM tasks WHERE id = '{parent}' FOR UPDATE",
        f"SELECT shiftboss.complete({held}, NULL)",
        f"SELECT shiftboss.cancel({array(child, parent)})",
    )
    assert await status(db, parent, child) == ["Complete", "Cancelled"]


async def test_children_come_in_while_their_parents_end(db: Database, eventually: Eventually) -> None:
    a, b = ids(2)
    await db.tasks.enqueue([NewTask(task_type="t", id=id) for id in (a, b)])
    held = await claimed(db, a, b)
    children = f'[{{"task_type": "t", "depends_on": ["{b}"]}}, {{"task_type": "t", "depends_on": ["{a}"]}}]'
    await crosswise(
        db,
        eventually,
        f"SELECT FROM tasks WHERE id = '{b}' FOR UPDATE",
        f"SELECT * FROM shiftboss.enqueue('{children}')",
        f"SELECT shiftboss.complete({held}, NULL)",
    )
    assert len(await db.tasks.claim("w", 10)) == 2


@asynccontextmanager
async def two_limits(db: Database) -> AsyncIterator[str]:
    """Types a and b with limits; what holds that of b."""
    for name in ("a", "b"):
        await db.tasks.set_limit("task_type", name, max_running=100, max_per_key=100)
    yield "SELECT FROM shiftboss.limits WHERE name = 'b' FOR UPDATE"


async def test_claims_of_limited_types_in_crossing_priorities(db: Database, eventually: Eventually) -> None:
    async with two_limits(db) as held:
        for queue, first, second in (("one", "a", "b"), ("two", "b", "a")):
            await enqueue(db, queue=queue, task_type=first, priority=15)
            await enqueue(db, queue=queue, task_type=second, priority=5)
            await db.execute("SELECT shiftboss.register(%s, p_queues => %s)", [f"w-{queue}", [queue]])
        calls = [f"SELECT * FROM shiftboss.claim('w-{queue}', 10)" for queue in ("two", "one")]
        taken = await crosswise(db, eventually, held, *calls)
    assert [len(rows) for rows in taken] == [2, 2]


@pytest.mark.parametrize("turn", [1, -1])
async def test_reports_on_limited_types_in_crossing_outcomes(
    db: Database, eventually: Eventually, turn: int
) -> None:
    async with two_limits(db) as held:
        made = [await enqueue(db, task_type=kind, concurrency_key="k") for kind in "baab"]
        reports = []
        for pair in (made[:2], made[2:]):
            tasks = await claimed(db, *pair)
            reports.append(
                f"SELECT shiftboss.report('{{w,w}}', {tasks}, '{{completed,failed}}', '{{null,boom}}', '{{1,1}}', "
                "'{0,0}', '{false,false}')"
            )
        await crosswise(db, eventually, held, *reports[::turn])
    assert await status(db, *made) == ["Complete", "Queued", "Complete", "Queued"]


@pytest.mark.parametrize("turn", [1, -1])
async def test_assignments_of_limited_types_in_crossing_lanes(
    db: Database, eventually: Eventually, turn: int
) -> None:
    async with two_limits(db) as held:
        made = [await enqueue(db, task_type=kind) for kind in "abab"]
        await db.fetch("SELECT shiftboss.admit(name) FROM unnest('{w1,w2}'::text[]) name")
        calls = [
            f"SELECT * FROM shiftboss.assign_each({array(*made[:2])}, '{{w1,w2}}')",
            f"SELECT * FROM shiftboss.assign_each({array(made[3], made[2])}, '{{w1,w2}}')",
        ]
        taken = await crosswise(db, eventually, held, *calls[::turn])
    assert [len(rows) for rows in taken] == [2, 2]


async def test_a_claim_of_many_lanes_leaves_the_rest_to_others(db: Database) -> None:
    tenants = [f"tenant-{n}" for n in range(5)]
    await db.tasks.enqueue([NewTask(task_type="t", tenant=tenant) for tenant in tenants for _ in range(10)])
    seen: set[UUID] = set()
    async with db.transaction() as first, db.transaction() as second, db.transaction() as third:
        for conn, worker in zip((first, second, third), "123", strict=True):
            taken = await _claim(conn, worker, 10)
            assert len(taken) == 10
            assert seen.isdisjoint(taken)
            seen |= taken


async def _claim(conn: Connection, worker: str, count: int) -> set[UUID]:
    rows = await (await conn.execute("SELECT id FROM shiftboss.claim(%s, %s)", [worker, count])).fetchall()
    return {row["id"] for row in rows}
