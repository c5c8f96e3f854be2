"""Dashboard and API with encrypted payloads: decrypted if the service has the key, never shown as ciphertext."""

from __future__ import annotations

from uuid import UUID

import httpx
import pytest
from tests.app.test_encryption import SECRET, keys

from shiftboss.db import Database
from shiftboss.model.codec import new_key
from shiftboss.model.log import LogLine
from shiftboss.model.step import Part, Step
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member

HTML = {"Accept": "text/html"}


@pytest.fixture
def key() -> str:
    return new_key()


async def _task(db: Database) -> UUID:
    """A task that failed and left something of each kind."""
    [made] = await db.tasks.enqueue([NewTask(task_type="pay", params={"card": SECRET}, max_attempts=1)])
    await db.workers.register(Member(id="w"))
    [task] = await db.tasks.claim("w")
    await db.tasks.progress([(task.id, task.lease)], [40], [f"at {SECRET}"])
    await db.steps.store([Step(task.id, task.lease, "charge", 1, 0.1, b'"%s"' % SECRET.encode())])
    await db.steps.append([Part(task.id, task.lease, None, b'{"part":"%s"}' % SECRET.encode())])
    await db.logs.append([LogLine(task.id, task.lease, 1, None, 1.7e9, 30, "shop", f"logged {SECRET}")])
    await db.tasks.fail([(task.id, task.lease)], [f"ValueError: no {SECRET}\n\nTraceback: {SECRET}"])
    await db.schedules.put("nightly", "0 3 * * *", "UTC", {"task_type": "pay", "params": {"card": SECRET}}, "all",
                           (await db.fetch("SELECT now() AS at"))[0]["at"])  # fmt: skip
    await db.execute("SELECT shiftboss.fold_errors()")
    return made.id


async def test_pages_show_what_the_service_can_read(db: Database, api: httpx.AsyncClient, key: str) -> None:
    with keys(key):
        id = await _task(db)
        page = (await api.get(f"/tasks/{id}", headers=HTML)).text
        assert page.count(SECRET) >= 6
        assert "$enc" not in page
        assert (await api.get(f"/api/v1/admin/tasks/{id}")).json()["params"] == {"card": SECRET}
    with keys():
        for path in (
            f"/tasks/{id}",
            "/tasks?status=Failed",
            "/schedules",
            "/events",
            "/",
            f"/tasks/{id}?ask=again",
        ):
            answer = await api.get(path, headers=HTML)
            assert answer.status_code == 200, path
            assert SECRET not in answer.text, path
            assert "$enc:" not in answer.text, path
        assert "(encrypted)" in (await api.get(f"/tasks/{id}", headers=HTML)).text
        sealed = (await api.get(f"/api/v1/admin/tasks/{id}")).json()["params"]
        assert sealed.keys() == {"$enc"}
        again = await api.post("/api/v1/admin/tasks", json={"task_type": "pay", "params": sealed})
        assert again.status_code == 201, again.text
    with keys(key):
        row = await db.tasks.get(UUID(again.json()["id"]))
        assert row is not None
        assert row["params"] == {"card": SECRET}, "run again by a service that cannot read it"
