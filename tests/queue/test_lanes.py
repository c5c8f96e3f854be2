"""Claims discover the lanes of new tasks; an enqueue registers none."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask


async def lanes(db: Database) -> int:
    row = await db.fetch_one("SELECT count(DISTINCT lane) AS n FROM shiftboss.lanes")
    assert row is not None
    return int(row["n"])


async def test_one_claim_finds_every_new_lane(db: Database) -> None:
    await db.execute(
        "INSERT INTO tasks (task_type, queue) SELECT 't', 'q' || n FROM generate_series(1, 50) n"
    )
    assert await lanes(db) == 0
    assert len(await db.tasks.claim("w", 100)) == 50
    assert await lanes(db) == 50
    await db.execute(
        "INSERT INTO tasks (task_type, queue) SELECT 't', 'q' || n FROM generate_series(1, 80) n"
    )
    assert len(await db.tasks.claim("w", 100)) == 80
    assert await lanes(db) == 80


async def test_a_new_lane_of_higher_priority_goes_first_at_once(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(3)])
    await db.tasks.claim("w")
    [urgent] = await db.tasks.enqueue([NewTask(task_type="new", priority=50)])
    assert [task.id for task in await db.tasks.claim("w")] == [urgent.id]


async def test_a_lane_that_was_tidied_away_is_found_again(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t")])
    [task] = await db.tasks.claim("w")
    await db.tasks.complete([(task.id, task.lease)], [None])
    await db.execute("UPDATE shiftboss.lanes SET created_at = created_at - %s", [timedelta(days=2)])
    async with db.transaction() as conn:
        [made] = await db.tasks.enqueue([NewTask(task_type="t")], conn)
        await db.execute("SELECT shiftboss.tidy()")
        assert await lanes(db) == 0
    assert [task.id for task in await db.tasks.claim("w")] == [made.id]


async def test_readers_see_lanes_that_no_claim_has_met(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type=f"t{n}", queue="far", tenant="acme") for n in range(3)])
    assert await db.insights.tasks.types() == ["t0", "t1", "t2"]
    assert [row["name"] for row in await db.fairness.tenants()] == ["acme"]
    rows = await db.fetch("SELECT name, queues FROM shiftboss.task_types ORDER BY name")
    assert [(row["name"], row["queues"]) for row in rows] == [(f"t{n}", ["far"]) for n in range(3)]
    heads = await db.fetch("SELECT oldest_seconds FROM shiftboss.queues_within(10) WHERE name = 'far'")
    assert heads[0]["oldest_seconds"] is not None
    assert await lanes(db) == 0


@pytest.mark.parametrize("column", ["queue", "task_type"])
async def test_names_have_a_bound(db: Database, column: str) -> None:
    insert = "INSERT INTO tasks (task_type, queue) VALUES (%s, %s)"
    names = {"task_type": "t", "queue": "q"}
    longest, too_long = ([*(names | {column: "x" * size}).values()] for size in (500, 501))
    await db.execute(insert, longest)
    refused = pytest.raises(psycopg.errors.CheckViolation, match=f"{column} is longer than 500 bytes")
    async with db.transaction() as conn:
        with refused:
            async with conn.transaction():
                await conn.execute(f"UPDATE tasks SET {column} = repeat('x', 501)")
        with refused:
            async with conn.transaction():
                await conn.execute(insert, too_long)
