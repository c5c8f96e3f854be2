"""Questions to people over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
from admin_helpers import served
from pydantic import BaseModel

from shiftboss import App, Context
from shiftboss.db import Database
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.kit import Kit
from shiftboss.model.settings import Settings

API = "/api/v1/admin"
app = App("press")


class Verdict(BaseModel):
    ok: bool


@app.task()
async def publish(ctx: Context) -> bool:
    verdict: Verdict = await ctx.wait_for("approval", Verdict, question="Publish it?")
    return verdict.ok


async def asked(url: str) -> str:
    async with Kit.open(app, url) as kit:
        handle = await publish.enqueue()
        await kit.drain()
        return str(handle.id)


async def test_a_question_is_listed_and_answered_by_an_operator(
    database_url: str, as_role: Callable[[str], Awaitable[httpx.AsyncClient]]
) -> None:
    id = await asked(database_url)
    viewer, operator, admin = [await as_role(role) for role in ("viewer", "operator", "admin")]
    (one,) = (await viewer.get(f"{API}/approvals")).json()
    assert (one["task_id"], one["question"], one["name"], one["ordinal"]) == (
        id,
        "Publish it?",
        "approval",
        1,
    )
    assert one["schema"]["properties"]["ok"]["type"] == "boolean"
    (step,) = (await viewer.get(f"{API}/tasks/{id}/steps")).json()
    assert (step["question"], step["schema"], step["answered_by"]) == (one["question"], one["schema"], None)
    path = f"{API}/tasks/{id}/answer"
    assert (await viewer.post(path, json={"answer": {"ok": True}})).status_code == 403
    wrong = await operator.post(path, json={"answer": {"ok": "perhaps"}})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "ok")
    assert (await operator.post(path, json={"answer": {"ok": True}, "step": "other"})).status_code == 404
    done = await operator.post(path, json={"answer": {"ok": True}, "step": "approval#1"})
    assert (done.status_code, done.json()["question"]) == (200, "Publish it?")
    assert (await operator.post(path, json={"answer": {"ok": True}})).status_code == 404
    assert (await viewer.get(f"{API}/approvals")).json() == []
    acts = (await admin.get(f"{API}/audit")).json()
    assert [
        (act["outcome"], act["details"].get("answer")) for act in acts if act["action"] == "task.answer"
    ] == [
        ("failed", None),
        ("done", {"ok": True}),
        ("failed", None),
        ("failed", {"ok": "perhaps"}),
        ("refused", None),
    ]


async def test_hidden_payloads_hide_answers_in_the_audit_log(
    database_url: str, db: Database, settings: Settings
) -> None:
    id = await asked(database_url)
    hidden = settings.model_copy(update={"admin": AdminSettings(hide_payloads=True)})
    async with served(db, hidden) as url, httpx.AsyncClient(base_url=url, timeout=20) as api:
        assert (await api.post(f"{API}/tasks/{id}/answer", json={"answer": {"ok": True}})).status_code == 200
        (act,) = (await api.get(f"{API}/audit")).json()
        assert act["details"]["answer"] == "(hidden)"
        assert '"ok"' not in (await api.get("/access")).text
