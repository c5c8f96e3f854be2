"""Single enqueues at the same time are stored together, and each gets its own result."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable
from shiftboss.model.task import NewTask

ROWS = "SELECT id, task_type, params, queue, priority, tenant, xmin::text AS transaction FROM tasks"


async def at_once(db: Database, tasks: list[NewTask]) -> list[Any]:
    made = [asyncio.create_task(db.tasks.enqueue([task])) for task in tasks]
    return await asyncio.gather(*made, return_exceptions=True)


async def test_enqueues_at_the_same_time_share_transactions(db: Database) -> None:
    tasks = [
        NewTask(task_type=f"t{n}", params={"n": n}, priority=n % 9, tenant="x" if n % 2 else None)
        for n in range(200)
    ]
    made = await at_once(db, tasks)
    rows = {row["id"]: row for row in await db.fetch(ROWS)}
    assert len(rows) == 200
    for task, [one] in zip(tasks, made, strict=True):
        row = rows[one.id]
        assert one.created
        assert (row["task_type"], row["params"], row["queue"]) == (task.task_type, task.params, "default")
        assert (row["priority"], row["tenant"]) == (task.priority, task.tenant)
    assert (
        len({row["transaction"] for row in rows.values()}) <= 4
    )  # two alone, and one for each set of columns


async def test_an_enqueue_that_meets_no_other_is_stored_alone(db: Database) -> None:
    for _ in range(3):
        await db.tasks.enqueue([NewTask(task_type="t")])
    assert len({row["transaction"] for row in await db.fetch(ROWS)}) == 3


async def test_one_invalid_task_rejects_only_itself(db: Database) -> None:
    taken = uuid4()
    await db.tasks.enqueue([NewTask(task_type="t", id=taken)])
    tasks = [NewTask(task_type="t", params={"n": n}, id=uuid4() if n != 50 else taken) for n in range(100)]
    made = await at_once(db, tasks)
    failed = [one for one in made if isinstance(one, Exception)]
    assert [type(one) for one in failed] == [DatabaseError]
    assert isinstance(made[50], DatabaseError)
    assert len(await db.fetch(ROWS)) == 100


async def test_options_that_need_more_than_a_row_work_beside_others(db: Database) -> None:
    tasks = [NewTask(task_type="t", dedup_key="k" if n % 2 else None) for n in range(100)]
    made = await at_once(db, tasks)
    assert sum(one.created for [one] in made) == 51
    assert len({one.id for [one] in made}) == 51
    assert len(await db.fetch(ROWS)) == 51


async def test_a_cancelled_caller_takes_nobody_else_along(db: Database) -> None:
    made = [asyncio.create_task(db.tasks.enqueue([NewTask(task_type="t")])) for _ in range(100)]
    await asyncio.sleep(0)
    for task in made[50:]:
        task.cancel()
    done = await asyncio.gather(*made, return_exceptions=True)
    assert all(isinstance(one, list) for one in done[:50])
    assert all(isinstance(one, asyncio.CancelledError) for one in done[50:])
    assert len(await db.fetch(ROWS)) == 50
    assert (await db.tasks.enqueue([NewTask(task_type="t")]))[0].created


async def test_all_learn_that_the_database_is_away(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def away(sql: str, params: list[Any]) -> None:
        nonlocal calls
        calls += 1
        raise DatabaseUnavailable("the database is away")

    monkeypatch.setattr(db.tasks._gatherer, "_store", away)
    made = await at_once(db, [NewTask(task_type="t") for _ in range(50)])
    assert sum(isinstance(one, DatabaseUnavailable) for one in made) == 48  # the first two were alone
    assert calls == 1
