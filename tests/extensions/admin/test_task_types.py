"""Task types over HTTP: their schemas, and tasks that do not fit them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx

from shiftboss.db import Database

SCHEMA = {"type": "object", "properties": {"image_id": {"type": "integer"}}, "required": ["image_id"]}


async def test_types_are_listed_and_tasks_checked(
    db: Database, as_role: Callable[[str], Awaitable[httpx.AsyncClient]]
) -> None:
    await db.schemas.publish("w1", [{"name": "img.thumbnail", "schema": SCHEMA, "version": "2"}])
    viewer, operator = await as_role("viewer"), await as_role("operator")
    [found] = (await viewer.get("/api/v1/admin/task-types")).json()
    assert (found["task_type"], found["schema"], found["version"]) == ("img.thumbnail", SCHEMA, "2")
    assert (await viewer.get("/api/v1/admin/task-types/img.thumbnail")).json() == found
    assert (await viewer.get("/api/v1/admin/task-types/none")).status_code == 404

    wrong = {"task_type": "img.thumbnail", "params": {"image_id": "abc"}}
    answer = await operator.post("/api/v1/admin/tasks", json=wrong)
    assert answer.status_code == 422
    assert 'image_id: "abc" does not fit, integer is expected' in answer.text.replace("\\", "")
    right = wrong | {"params": {"image_id": 7}}
    assert (await operator.post("/api/v1/admin/tasks", json=right)).json()["warning"] is None
    unknown = (await operator.post("/api/v1/admin/tasks", json={"task_type": "later.on"})).json()
    assert "no worker serves" in unknown["warning"]
    schedule = {"cron": "0 3 * * *", "task_type": "img.thumbnail", "params": {"image_id": "abc"}}
    answer = await operator.put("/api/v1/admin/schedules/nightly", json=schedule)
    assert (answer.status_code, "image_id" in answer.text) == (422, True)


async def test_fairness_over_http(
    db: Database, as_role: Callable[[str], Awaitable[httpx.AsyncClient]]
) -> None:
    viewer, operator = await as_role("viewer"), await as_role("operator")
    assert (await viewer.put("/api/v1/admin/tenants/acme", json={"weight": 3})).status_code == 403
    assert (await operator.put("/api/v1/admin/tenants/acme", json={"weight": 3})).json() == {
        "changed": ["acme"]
    }
    assert (await viewer.get("/api/v1/admin/tenants")).json() == [
        {"name": "acme", "weight": 3.0, "set": True}
    ]
    assert (await operator.delete("/api/v1/admin/tenants/acme")).json() == {"changed": ["acme"]}
    assert (await operator.put("/api/v1/admin/tenants/acme", json={"weight": 0})).status_code == 422
    assert (await viewer.get("/api/v1/admin/ageing")).json() == {"every_seconds": None}
    await operator.put("/api/v1/admin/ageing", json={"every_seconds": 600})
    assert (await viewer.get("/api/v1/admin/ageing")).json() == {"every_seconds": 600.0}
    limits = {"rate": 5, "rate_per": "tenant"}
    assert (await operator.put("/api/v1/admin/queues/mail/limits", json=limits)).status_code == 200
    [mail] = [one for one in (await viewer.get("/api/v1/admin/queues")).json() if one["name"] == "mail"]
    assert (mail["rate"], mail["rate_per"]) == (5, "tenant")
