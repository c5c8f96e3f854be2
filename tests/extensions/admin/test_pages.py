"""Pages over HTTP: odd addresses and forms, headers, and the stream of an open page; without a browser."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import orjson
import pytest

from shiftboss.db import Database
from shiftboss.extensions.admin.access import COOKIE
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.extensions.runs.store import Runs
from shiftboss.model.access import Role
from shiftboss.model.log import LogLine
from shiftboss.model.settings import Settings
from shiftboss.model.step import Part, Step
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member

HTML = {"Accept": "text/html"}
PATHS = ("/", "/tasks", "/approvals", "/workers", "/runs", "/queues", "/schedules", "/journal", "/vectorizers",
         "/providers", "/ai/calls", "/ai/limits", "/events", "/access")  # fmt: skip
ODD = (
    "/?span=zz", "/tasks?status=odd", "/tasks?since=soon", "/tasks?cursor=zzz", "/tasks?queue=%00", "/tasks/7",
    "/tasks/01890000-0000-7000-8000-000000000000", "/tasks/%00", "/workers/%00", "/workers/nobody", "/slots/none",
    "/runs?status=odd", "/runs/7", "/runs?bot=%ff", "/events?before=99999999999999999999", "/access?before=x",
    "/journal?user=nobody", "/journal/nothing", "/vectorizers/999", "/vectorizers/x", "/queues?ask=nothing",
    "/queues?ask=limit", "/schedules?ask=edit&arg=none", "/vectorizers?ask=drop&arg=x", "/nowhere", "/login/%00",
    "/assets/x/y", "/tasks?text=%27%22%3C", "/ai/calls/7", "/ai/calls?before=x", "/ai/calls?before=2030-01-01~x",
    "/ai/calls?outcome=odd", "/ai/calls?tenant=%00", "/ai/limits?ask=set&arg=odd", "/tasks?ask=new&arg=odd",
    "/tasks?ask=new&arg=json+", "/vectorizers?q=a&mode=odd&filter=odd", "/login?next=//evil.example",
)  # fmt: skip
FORMS = (
    b"", b"act=", b"act=odd", b"act=retry-task+x", b"act=retry-group+7", b"id=1&act=retry-selected", b"\xff\x00=\x00",
    b"act=limit", b"act=limit+queue+x&rate=many", b"act=save&cron=odd", b"act=start-run+odd", b"act=scale&count=x",
    b"act=create-token&name=%00&role=viewer", b"act=create-token&name=a&role=odd", b"act=create&source=%22",
    b"act=answer", b"act=answer+x+y", b"act=answer+01890000-0000-7000-8000-000000000000", b"act=set+tenant",
    b"act=set+odd+x&daily_budget=1", b"act=set+tenant+x&daily_budget=-1", b"act=create+form+odd", b"act=create+json",
    b"act=drop+x", b"act=process+nobody", b"act=import", b"act=pause-slot+none", b"act=resume-worker+none",
)  # fmt: skip


async def test_odd_addresses_are_told_and_never_break(api: httpx.AsyncClient) -> None:
    for path in (*PATHS, *ODD):
        answer = await api.get(path, headers=HTML)
        assert answer.status_code < 500, (path, answer.text[:300])
        if path in PATHS:
            assert answer.status_code == 200, path
            assert "'unsafe-inline'" not in answer.headers["content-security-policy"]
            assert answer.headers["x-frame-options"] == "DENY"
            assert " style=" not in answer.text
            assert "<script>" not in answer.text


async def test_the_overview_shows_ai_only_where_it_is_used(api: httpx.AsyncClient, db: Database) -> None:
    assert "AI providers" not in (await api.get("/", headers=HTML)).text
    await db.execute("INSERT INTO shiftboss.ai_providers (provider) VALUES ('openai')")
    assert "AI providers" in (await api.get("/", headers=HTML)).text


async def test_odd_forms_are_told_and_never_break(api: httpx.AsyncClient) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    for path in PATHS:
        for body in FORMS:
            for accept in (HTML, {"Accept": "application/json"}):
                answer = await api.post(path, content=body, headers={**kind, **accept})
                assert answer.status_code < 500, (path, body, answer.text[:300])


async def test_a_form_of_another_site_does_nothing(api: httpx.AsyncClient, db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t", queue="q")])
    for origin in ("http://evil.example", "null"):
        answer = await api.post("/queues", data={"act": "pause queue q"}, headers={"Origin": origin, **HTML})
        assert answer.status_code == 403, origin
    assert await db.fetch("SELECT * FROM shiftboss.pauses") == []
    done = await api.post("/queues", data={"act": "pause queue q"}, headers=HTML)
    assert (done.status_code, done.headers["location"]) == (303, "/queues")
    assert "q is paused. Running" in (await api.get("/queues", headers=HTML)).text
    assert "q is paused. Running" not in (await api.get("/queues", headers=HTML)).text, "it is told once"


async def test_the_stream_sends_what_changed_and_nothing_else(api: httpx.AsyncClient, db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t", queue="q")])
    async with api.stream("GET", "/queues", headers={"Accept": "text/event-stream"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        names = []
        async for line in stream.aiter_lines():
            if not line.startswith("data: ["):
                continue
            name, _, html = orjson.loads(line[6:])
            names.append(name)
            if name == "queues" and "paused" in html:
                break
            if set(names) >= {"queues", "types"} and "alerts" in names and names.count("queues") == 1:
                await db.tasks.pause("queue", "q", "because")
    assert names.count("types") == 1, "the other pieces stay"


@pytest.mark.parametrize("cookie", [None, "gone"])
async def test_a_stream_without_a_session_leads_to_the_login(
    api: httpx.AsyncClient, db: Database, cookie: str | None
) -> None:
    await db.tokens.create_token("ann", Role.VIEWER, timedelta(days=1))
    if cookie:
        api.cookies[COOKIE] = cookie
    answer = await api.get("/tasks", headers={"Accept": "text/event-stream"})
    assert answer.text == "event: gone\ndata: \n\n"
    told = await api.post("/tasks", data={"act": "retry-all"}, headers={"Accept": "application/json"})
    assert (told.status_code, told.json()) == (401, {"go": "/login"})
    assert (await api.get("/tasks", headers=HTML)).headers["location"] == "/login?next=%2Ftasks"


@pytest.mark.parametrize("settings", [{"SHIFTBOSS_ADMIN_HIDE_PAYLOADS": "true"}], indirect=True)
async def test_hidden_payloads_show_nowhere_on_the_page_of_a_task(
    api: httpx.AsyncClient, db: Database, settings: Settings
) -> None:
    secret = "sesame"
    await db.workers.register(Member(id="w"))
    await db.tasks.enqueue([NewTask(task_type="t", params={"p": secret})])
    (task,) = await db.tasks.claim("w", 1)
    held = [(task.id, task.lease)]
    part = f'"{secret}"'.encode()
    await db.steps.append([Part(task.id, task.lease, None, part)])
    await db.steps.store([Step(task.id, task.lease, "look", 1, 0.1, part)])
    await db.logs.append([LogLine(task.id, task.lease, 1, None, time.time(), 30, "t", secret, 0)])
    await db.family(AIEngine).record_calls([_call(task.id, secret)], 60.0)
    await db.tasks.complete(held, [part])
    page = await api.get(f"/tasks/{task.id}", headers=HTML)
    assert page.status_code == 200
    for word in ("look", "AI call", "Stream", "Log", "Result"):
        assert word in page.text, word
    (call,) = await db.family(AIEngine).calls(task_id=task.id)
    for path in (
        f"/tasks/{task.id}",
        f"/tasks/{task.id}?ask=again",
        "/tasks",
        f"/ai/calls/{call['call_id']}",
    ):
        assert secret not in (await api.get(path, headers=HTML)).text, path


@pytest.mark.parametrize("settings", [{"SHIFTBOSS_ADMIN_HIDE_PAYLOADS": "true"}], indirect=True)
async def test_hidden_payloads_of_runs_and_schedules_are_kept_but_not_shown(
    api: httpx.AsyncClient, db: Database, settings: Settings
) -> None:
    secret, soon = {"p": "sesame"}, datetime.now(UTC) + timedelta(days=1)
    run = await db.family(Runs).start_run("verify", None, None, secret, requested_by="ann")
    await db.schedules.put("s", "0 3 * * *", "UTC", {"task_type": "t", "params": secret}, "latest", soon)
    runs = "/api/v1/admin/workers/runs"
    for path in (
        f"/runs/{run.id}",
        "/runs",
        "/schedules",
        "/schedules?ask=edit&arg=s",
        runs,
        f"{runs}/{run.id}",
    ):
        shown = await api.get(path, headers=HTML)
        assert (shown.status_code, "sesame" in shown.text) == (200, False), path
    form = {"act": "save s", "name": "s", "task_type": "t", "cron": "0 4 * * *", "timezone": "UTC"}
    assert (await api.post("/schedules", data=form, headers=HTML)).status_code == 303
    saved = await db.schedules.get("s")
    assert saved is not None
    assert (saved["cron"], saved["task"]["params"]) == ("0 4 * * *", secret)


def _call(task: UUID, secret: str) -> dict[str, Any]:
    return {
        "call_id": str(uuid4()), "provider": "local", "model": "m", "kind": "completion", "task_type": "t",
        "task_id": str(task), "tenant": None, "key": None, "template": None, "template_version": None,
        "outcome": "ok", "prompt_tokens": 1, "completion_tokens": 1, "cost": 0, "latency_ms": 5.0, "error": None,
        "finish_reason": "stop", "started_at": datetime.now(UTC).isoformat(),
        "prompt": {"messages": [{"role": "user", "content": secret}]}, "answer": {"text": secret},
    }  # fmt: skip


async def test_pause_all_pauses_workers_without_a_supervisor_as_well(
    api: httpx.AsyncClient, db: Database
) -> None:
    await db.health.register_worker("worker:mail:0", pid=None)
    await db.workers.register(Member(id="lone"))
    for act, paused in (("pause-slot", True), ("resume-slot", False)):
        done = await api.post("/workers", data={"act": act}, headers=HTML)
        assert done.status_code == 303
        row = await db.workers.get("lone")
        assert row is not None
        assert row["paused"] is paused
