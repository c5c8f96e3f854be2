"""Rules of a claim that no other test would miss. Each was found by a mutant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from tests.queue.test_queue import enqueue
from tests.queue.test_sessions import _has, in_a_session

MINUTE = timedelta(minutes=1)


@asynccontextmanager
async def holding(db: Database, statement: str, *values: Any) -> AsyncIterator[None]:
    """Another session that keeps the locks of this statement."""
    async with db.dedicated() as conn:
        await conn.execute("BEGIN")
        await conn.execute(statement, values)
        yield
        await conn.execute("ROLLBACK")


async def impatient(db: Database, call: str, *values: Any, later: str = "0") -> list[dict[str, Any]]:
    """The rows of a call that fails instead of waiting for a lock, at a later time."""
    async with db.dedicated() as conn:
        await conn.execute("SET lock_timeout = '1s'")
        if later != "0":
            await conn.execute(
                "SELECT set_config('shiftboss.now', (clock_timestamp() + %s::interval)::text, false)", [later]
            )
        return await (await conn.execute(call, values)).fetchall()


async def test_a_claim_over_limited_and_other_lanes_takes_what_was_asked_for(db: Database) -> None:
    await db.tasks.set_limit("task_type", "narrow", max_running=2)
    await db.tasks.enqueue([NewTask(task_type=name) for name in ["narrow"] * 4 + ["wide"] * 9])
    assert len(await db.tasks.claim("w", 3)) == 3
    assert len(await db.tasks.claim("w", 3)) == 3


async def test_a_limit_holds_although_some_tasks_are_parked(db: Database) -> None:
    await db.tasks.set_limit("task_type", "t", max_running=2, max_per_key=1)
    await db.tasks.enqueue([NewTask(task_type="t", concurrency_key=key) for key in ("a", "a", "b", "c")])
    assert len(await db.tasks.claim("w", 10)) == 2


async def test_each_lane_is_registered_once(db: Database) -> None:
    count = "SELECT count(*) AS n, count(DISTINCT lane) AS lanes FROM shiftboss.lanes"
    for lanes in (3, 6):
        await db.tasks.enqueue([NewTask(task_type=f"t{n}") for n in range(lanes) for _ in range(3)])
        await db.tasks.claim("w", 1)
        assert await db.fetch(count) == [{"n": lanes, "lanes": lanes}]


@pytest.mark.parametrize("only", [False, True])
async def test_a_limited_lane_gives_its_own_tasks_that_are_due(db: Database, only: bool) -> None:
    await db.tasks.set_limit("task_type", "a", max_running=5)
    mine = await enqueue(db, task_type="a")
    others = [
        await enqueue(db, task_type="b"),
        await enqueue(db, task_type="a", delay=MINUTE),
        await enqueue(db, task_type="a", depends_on=[mine]),
        await enqueue(db, task_type="a", priority=6),
    ]
    [running] = await db.tasks.assign([await enqueue(db, task_type="a")], "w")
    rows = await db.fetch(
        "SELECT shiftboss.pick_limited(shiftboss.lane_of('default', 'a', 5::smallint, NULL, NULL),"
        " 'default', 'a', 10, shiftboss.now(), %s::uuid[]) AS ids",
        [[mine, *others, running.id] if only else None],
    )
    assert rows == [{"ids": [mine]}]


async def test_types_with_rates_per_key_have_their_own_buckets(db: Database) -> None:
    for name in ("a", "b"):
        await db.tasks.set_limit("task_type", name, rate=1, rate_period=MINUTE, rate_per="key")
    some = [NewTask(task_type=name, concurrency_key=key) for name in "ab" for key in ("k1", "k2")]
    await db.tasks.enqueue(some)
    assert len(await db.tasks.claim("w", 10)) == 4
    buckets = await db.fetch("SELECT name, key, tokens FROM shiftboss.rate_buckets ORDER BY name, key")
    assert buckets == [{"name": name, "key": key, "tokens": 0} for name in "ab" for key in ("k1", "k2")]
    await db.tasks.enqueue(some)
    assert await db.tasks.claim("w", 10) == []


async def test_a_claim_spends_the_rates_of_its_own_queue_and_type(db: Database) -> None:
    for kind, name in (("queue", "q"), ("queue", "other"), ("task_type", "a"), ("task_type", "q")):
        await db.tasks.set_limit(kind, name, rate=9, rate_period=MINUTE)
    await enqueue(db, task_type="a", queue="q")
    assert len(await db.tasks.claim("w", 1)) == 1
    rows = await db.fetch("SELECT kind, name FROM shiftboss.limits WHERE tokens < 9 ORDER BY 1")
    assert rows == [{"kind": "queue", "name": "q"}, {"kind": "task_type", "name": "a"}]


@pytest.mark.session
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("types", ["aa", "ab"])
async def test_a_claim_passes_by_what_another_session_is_claiming(
    db: Database, types: str, limited: bool
) -> None:
    if limited:
        await db.tasks.set_limit("task_type", "a", max_running=5)
    first, second = [await enqueue(db, task_type=name) for name in types]
    await db.execute("SELECT shiftboss.find_lanes()")
    async with holding(db, "SELECT FROM tasks WHERE id = %s FOR UPDATE", first):
        rows = await impatient(db, "SELECT id FROM shiftboss.claim('w', 2)")
    assert rows == [{"id": second}]


@pytest.mark.session
async def test_what_another_session_takes_after_the_choice_is_not_taken_twice(
    db: Database, eventually: Callable[..., Awaitable[Any]]
) -> None:
    """Candidates of several lanes are chosen without locks. Here a view delays the choice after its snapshot."""
    await db.execute("ALTER TABLE shiftboss.tenants RENAME TO all_tenants")
    await db.execute(
        "CREATE VIEW shiftboss.tenants AS SELECT t.* FROM (SELECT pg_advisory_xact_lock(7)) x"
        " LEFT JOIN shiftboss.all_tenants t ON true"
    )
    first, *others = [await enqueue(db, queue=name) for name in "abbcc"]
    await db.execute("SELECT shiftboss.find_lanes(), shiftboss.register('narrow', p_queues => '{a}')")
    async with holding(db, "SELECT pg_advisory_xact_lock(7)"):
        wide = asyncio.create_task(in_a_session(db, "SELECT id FROM shiftboss.claim('wide', 2)"))
        await eventually(lambda: _has(db, 1))
        assert await impatient(db, "SELECT id FROM shiftboss.claim('narrow', 1)") == [{"id": first}]
    ids = [row["id"] for row in await wide]
    assert len(ids) == 2
    assert set(ids) <= set(others)


@pytest.mark.session
async def test_a_claim_waits_for_one_that_fills_its_limit(
    db: Database, eventually: Callable[..., Awaitable[Any]]
) -> None:
    await db.tasks.set_limit("task_type", "t", max_running=1)
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(2)])
    claim = "SELECT id FROM shiftboss.claim('%s', 1)"
    async with db.dedicated() as first:
        await first.execute("BEGIN")
        await first.execute(claim % "w1")
        second = asyncio.create_task(in_a_session(db, claim % "w2"))
        await eventually(lambda: _has(db, 1))
        await first.execute("COMMIT")
    assert await second == []


@pytest.mark.session
@pytest.mark.parametrize("types", ["aa", "ab"])
async def test_a_task_is_due_at_its_very_time(db: Database, types: str) -> None:
    at = "2026-01-01 00:00+00"
    async with db.dedicated() as conn:
        await conn.execute("SELECT set_config('shiftboss.now', %s, false)", [at])
        for name in types:
            await conn.execute("INSERT INTO tasks (task_type, run_at) VALUES (%s, %s)", [name, at])
        claimed = await (await conn.execute("SELECT id FROM shiftboss.claim('w', 2)")).fetchall()
    assert len(claimed) == 2


@pytest.mark.session
@pytest.mark.parametrize("limited", [False, True])
async def test_an_assignment_passes_by_locked_tasks_and_takes_nothing_else(
    db: Database, limited: bool
) -> None:
    if limited:
        await db.tasks.set_limit("task_type", "t", max_running=5)
    first, second, _ = [await enqueue(db) for _ in range(3)]
    async with holding(db, "SELECT FROM tasks WHERE id = %s FOR UPDATE", first):
        rows = await impatient(
            db, "SELECT id FROM shiftboss.assign(%s, 'w')", [first, second]
        )  # the third was not asked for
    assert rows == [{"id": second}]


async def test_an_assignment_keeps_to_what_its_worker_can_do_and_to_pauses(db: Database) -> None:
    await db.execute("SELECT shiftboss.register('w', p_queues => '{mine}')")
    mine, other = await enqueue(db, queue="mine"), await enqueue(db, queue="other")
    paused = await enqueue(db, queue="mine", task_type="paused")
    await db.execute("INSERT INTO shiftboss.pauses (kind, name) VALUES ('task_type', 'paused')")
    assert [task.id for task in await db.tasks.assign([mine, other, paused], "w")] == [mine]
