"""Logs of tasks over HTTP: a page at a time, live, and hidden with payloads."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

import httpx
import orjson
from admin_helpers import served

from shiftboss.db import Database
from shiftboss.model.log import LogLine
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask


async def logged(db: Database, count: int) -> UUID:
    [(id, *_)] = await db.tasks.enqueue([NewTask(task_type="t")])
    lines = [LogLine(id, 1, 1, None, time.time(), 20 + n % 2 * 10, "shop", f"line {n}") for n in range(count)]
    await db.logs.append(lines, [id])
    return id


async def test_pages_levels_and_streams(api: httpx.AsyncClient, db: Database) -> None:
    id = await logged(db, 5)
    path = f"/api/v1/admin/tasks/{id}/logs"
    page = (await api.get(path, params={"limit": 3})).json()
    assert [one["message"] for one in page["items"]] == ["line 0", "line 1", "line 2"]
    assert page["items"][0] | {"id": 0, "at": ""} == {
        "id": 0, "attempt": 1, "step": None, "at": "", "level": "info", "logger": "shop", "message": "line 0", "dropped": 0,
    }  # fmt: skip
    rest = (await api.get(path, params={"after": page["next"]})).json()
    assert [one["message"] for one in rest["items"]] == ["line 3", "line 4"]
    assert rest["next"] is None
    warnings = (await api.get(path, params={"level": "warning"})).json()
    assert [one["message"] for one in warnings["items"]] == ["line 1", "line 3"]
    await db.tasks.cancel([id])
    answer = await api.get(f"{path}/stream", headers={"Last-Event-ID": str(page["items"][-1]["id"])})
    data = [orjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [one["message"] for one in data[:-1]] == ["line 3", "line 4"]
    assert answer.text.endswith("event: end\ndata: {}\n\n")
    assert (await api.get(f"/api/v1/admin/tasks/{uuid4()}/logs")).status_code == 404
    assert (await api.get(f"/api/v1/admin/tasks/{uuid4()}/logs/stream")).status_code == 404


async def test_messages_are_hidden_with_payloads(db: Database, database_url: str) -> None:
    id = await logged(db, 1)
    hiding = {"SHIFTBOSS_DATABASE_URL": database_url, "SHIFTBOSS_ADMIN_HIDE_PAYLOADS": "true"}
    async with served(db, Settings.load(hiding)) as url, httpx.AsyncClient(base_url=url) as client:
        page = (await client.get(f"/api/v1/admin/tasks/{id}/logs")).json()
    assert [one["message"] for one in page["items"]] == ["(hidden)"]
