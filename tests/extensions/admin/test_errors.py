"""Groups of errors over HTTP."""

from __future__ import annotations

import httpx

from shiftboss.db import Database
from shiftboss.leader.pruner import Pruner
from shiftboss.model.task import NewTask


async def test_groups_are_listed_shown_and_retried(api: httpx.AsyncClient, db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t", max_attempts=1) for _ in range(2)])
    held = [(task.id, task.lease) for task in await db.tasks.claim("w1", 2)]
    await db.tasks.fail(held, ["KeyError: 'a'", "KeyError: 'b'"])
    await Pruner(db).fold()
    [group] = (await api.get("/api/v1/admin/errors")).json()
    assert (group["error_type"], group["count"], group["workers"]) == ("KeyError", 2, ["w1"])
    path = f"/api/v1/admin/errors/{group['id']}"
    detail = (await api.get(path)).json()
    assert set(detail["failed_tasks"]) == {str(id) for id, _ in held}
    assert (await api.post(f"{path}/retry")).json() == {"retried": 2}
    assert (await api.get("/api/v1/admin/errors/abc")).status_code == 404
    assert (await api.get("/api/v1/admin/errors", params={"since": "2100-01-01T00:00:00Z"})).json() == []
