"""Processes that end, one way or another, and come back."""

from __future__ import annotations

import os
from typing import Any

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from tests.supervisor.conftest import Supervise, statuses

SLOT = "worker:q:0"


async def enqueue(db: Database, task_type: str, **params: Any) -> Any:
    [made] = await db.tasks.enqueue([NewTask(task_type=task_type, queue="q", params=params)])
    return made.id


async def healthy(db: Database, component: str = SLOT) -> bool:
    return (await statuses(db)).get(component) == "healthy"


async def test_a_clean_life(db: Database, supervise: Supervise, eventually: Any) -> None:
    async with supervise({"q": 2}):
        await eventually(lambda: _all_healthy(db, 2), timeout=30)
        task = await enqueue(db, "nothing")
        done = await eventually(lambda: _ended(db, task))
        assert done["status"] == "Complete"
        workers = await db.fetch("SELECT id, host FROM workers WHERE status = 'active' ORDER BY id")
        assert [row["id"] for row in workers] == ["here/worker:q:0", "here/worker:q:1"]
        pids = [row["pid"] for row in await db.health.get_all_workers()]
        assert done["result_data"] in pids
    assert await statuses(db) == {}
    assert not any(_alive(pid) for pid in pids)


async def _all_healthy(db: Database, count: int) -> bool:
    return list((await statuses(db)).values()) == ["healthy"] * count


async def _ended(db: Database, task: Any) -> Any:
    return await db.fetch_one(
        "SELECT * FROM tasks WHERE id = %s AND status NOT IN ('Queued', 'In Progress')", [task]
    )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
