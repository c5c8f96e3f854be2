"""Texts from outside stay texts: no page makes markup of a worker's name, an error, a place or a prompt."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import orjson
import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.extensions.journal.parsing import parse
from shiftboss.extensions.journal.store import Journal
from shiftboss.extensions.runs.store import Runs
from shiftboss.model.access import Role
from shiftboss.model.log import LogLine
from shiftboss.model.step import Part, Step
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Capabilities, Member

HTML = {"Accept": "text/html"}
#: Each text has its own number, so that the test sees which of them a page shows.
NAMES = (
    "type", "queue", "params", "tenant", "pause", "worker", "capability", "event", "detail", "token", "error", "step",
    "result", "question", "field", "part", "log", "attempt", "group", "place", "message", "prompt", "answer", "template",
    "model", "city", "category", "run error", "counter", "slot", "slot error", "schedule", "alert", "writer",
    "text", "insight", "progress",
)  # fmt: skip


def evil(name: str) -> str:
    return f"\"'><img src=x{NAMES.index(name)}x onerror=alert(1)><script>alert(1)</script>"


@pytest.fixture
async def paths(db: Database) -> dict[str, tuple[str, ...]]:
    """Put every text into the database. Return the paths of the pages, with the texts that each must show."""
    await db.workers.register(
        Member(id=evil("worker"), capabilities=Capabilities(task_types=[evil("type"), evil("capability")]))
    )
    (waiting, running) = await _tasks(db)
    call = await _call(db, running)
    await db.tasks.pause("queue", evil("queue"), evil("pause"))
    await db.events.note(evil("event"), worker_id=evil("worker"), details={"x": evil("detail")})
    await db.tokens.create_token(evil("token"), Role.VIEWER)
    soon = datetime.now(UTC) + timedelta(days=1)
    await db.schedules.put(evil("schedule"), "0 3 * * *", "UTC", {"task_type": evil("type")}, "latest", soon)
    run = await _run(db)
    await db.execute(
        "INSERT INTO public.health (component, status, details_json) VALUES (%s, 'starting', %s)",
        [evil("slot"), orjson.dumps({"error_message": evil("slot error")}).decode()],
    )
    await db.execute(
        "INSERT INTO shiftboss.alerts (rule, subject, severity, message, advice, started_at, seen_at)"
        " VALUES ('queue_too_old', %s, 'warning', %s, %s, now(), now())",
        [evil("queue"), evil("alert"), "shiftboss queues list"],
    )
    entry = await _entry(db)
    return {
        "/": ("alert", "queue"),
        "/tasks": ("type", "queue", "error", "group", "place", "message"),
        f"/tasks/{running}": (
            "type", "queue", "worker", "params", "step", "result", "part", "log", "attempt", "prompt", "answer",
            "template", "model", "error", "progress",
        ),
        f"/tasks/{waiting}": ("question", "field"),
        f"/tasks/{running}?ask=again": ("params",),
        "/approvals": ("question", "field", "type"),
        "/workers": ("worker", "slot"),
        f"/workers/{_quoted('worker')}": ("worker", "capability", "detail"),
        f"/slots/{_quoted('slot')}": ("slot", "slot error"),
        "/queues": ("queue", "type", "pause", "tenant"),
        f"/queues?ask=limit&arg=queue+{_quoted('queue')}": ("queue",),
        "/schedules": ("schedule", "type"),
        "/events": ("event", "detail", "worker"),
        "/access": ("token",),
        "/runs": ("city", "category", "run error"),
        f"/runs/{run}": ("city", "run error"),
        "/ai/calls": ("model", "error"),
        f"/ai/calls/{call}": ("prompt", "answer"),
        "/journal": ("writer",),
        f"/journal?user={_quoted('writer')}": ("writer", "insight"),
        f"/journal/{entry}": ("text",),
        f"/tasks?queue={_quoted('queue')}&text={_quoted('params')}": ("queue", "params"),
        f"/journal?q={_quoted('text')}": ("text",),
    }  # fmt: skip


def _quoted(name: str) -> str:
    return str(httpx.QueryParams({"x": evil(name)}))[2:].replace("+", "%20").replace("/", "%2F")


async def _tasks(db: Database) -> tuple[UUID, UUID]:
    """A task that asks a question, and one that ran and failed once."""
    new = NewTask(
        task_type=evil("type"), queue=evil("queue"), params={"x": evil("params")}, tenant=evil("tenant")
    )
    asking, _ = await db.tasks.enqueue([new, new])
    await db.execute("UPDATE tasks SET hold = 'event' WHERE id = %s", [asking.id])
    schema = {"properties": {"x": {"type": "string", "title": evil("field"), "description": evil("field")}}}
    await db.execute(
        "INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, attempt, lease, started_at, question,"
        " schema) VALUES (%s, 'event', %s, 1, 'waiting', 1, 1, now(), %s, %s)",
        [asking.id, evil("step"), evil("question"), orjson.dumps(schema).decode()],
    )
    (task,) = await db.tasks.claim(evil("worker"), 1)
    quoted = orjson.dumps(evil("part"))
    await db.steps.append([Part(task.id, task.lease, None, quoted)])
    await db.steps.store([Step(task.id, task.lease, evil("step"), 1, 0.1, orjson.dumps(evil("result")))])
    await db.logs.append(
        [LogLine(task.id, task.lease, 1, evil("step"), time.time(), 30, "t", evil("log"), 0)]
    )
    await db.execute(
        "INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome,"
        " error) VALUES (%s, 1, 1, %s, now(), now(), 'failed', %s)",
        [task.id, evil("worker"), f"{evil('attempt')}\n{evil('attempt')}"],
    )
    await db.execute("UPDATE shiftboss.past_attempts SET error_group = 'abc'")
    await db.execute(
        "INSERT INTO shiftboss.error_groups (id, error_type, place, message, first_seen, last_seen, count,"
        " task_types, task_id) VALUES ('abc', %s, %s, %s, now(), now(), 1, %s, %s)",
        [evil("group"), evil("place"), evil("message"), [evil("type")], task.id],
    )
    await db.execute(
        "UPDATE tasks SET error_message = %s, status = 'Failed', progress = 3, progress_message = %s,"
        " generation_processed_at = now() WHERE id = %s",
        [f"{evil('error')}\n{evil('error')}", evil("progress"), task.id],
    )
    return asking.id, task.id


async def _call(db: Database, task: UUID) -> UUID:
    id = uuid4()
    call: dict[str, Any] = {
        "call_id": str(id), "provider": "local", "model": evil("model"), "kind": "completion", "task_type": "t",
        "task_id": str(task), "tenant": None, "key": None, "template": evil("template"), "template_version": None,
        "outcome": "error", "prompt_tokens": 1, "completion_tokens": 1, "cost": 0, "latency_ms": 5.0,
        "error": evil("error"), "finish_reason": "stop", "started_at": datetime.now(UTC).isoformat(),
        "prompt": {"messages": [{"role": "user", "content": evil("prompt")}]}, "answer": {"text": evil("answer")},
    }  # fmt: skip
    await db.family(AIEngine).record_calls([call], 60.0)
    return id


async def _run(db: Database) -> UUID:
    run = await db.family(Runs).start_run("survey", evil("city"), evil("category"), {}, requested_by="x")
    await db.execute(
        "UPDATE worker_runs SET status = 'failed', finished_at = now(), error_message = %s, counters = %s"
        " WHERE id = %s",
        [evil("run error"), orjson.dumps({evil("counter"): 1}).decode(), run.id],
    )
    return run.id


async def _entry(db: Database) -> UUID:
    journal, raw = db.family(Journal), {"id": "a1", "user": evil("writer"), "date": "2030-05-01"}
    (entry,) = await journal.upsert_entries([parse(raw | {"text": evil("text")}).row()])
    insight = {"key": "k", "kind": "trend", "text": evil("insight"), "confidence": 0.9, "evidence": []}
    await journal.store_insights(evil("writer"), [insight])
    id: UUID = entry["id"]
    return id


async def test_no_text_from_outside_becomes_markup(
    as_role: Callable[[str], Awaitable[httpx.AsyncClient]], paths: dict[str, tuple[str, ...]]
) -> None:
    admin = await as_role("admin")
    for path, shown in paths.items():
        page = await admin.get(path, headers=HTML)
        assert page.status_code == 200, (path, page.text[-500:])
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert "<img" not in page.text, path
        assert "<script>" not in page.text, path
        missing = [name for name in shown if f"src=x{NAMES.index(name)}x" not in page.text]
        assert missing == [], path
