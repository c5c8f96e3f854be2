"""A database in which every text that can come from outside is an attempt to become markup."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import orjson

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.extensions.journal.parsing import parse
from shiftboss.extensions.journal.store import Journal
from shiftboss.extensions.runs.store import Runs
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.extensions.vectorizer.worker import VectorizerWorker
from shiftboss.model.access import Principal, Role
from shiftboss.model.log import LogLine
from shiftboss.model.settings import Settings
from shiftboss.model.step import Part, Step
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Capabilities, Member
from shiftboss.operations import Operations


def mark(name: str) -> str:
    """Return the part of a text that does not change when the text is escaped, cut or quoted."""
    return f"src=x-{name.replace(' ', '-')}-"


def evil(name: str) -> str:
    """Return a text with its own mark, short enough for the name of a table."""
    return f"\"'><img {mark(name)} onerror=alert(1)>"


def quoted(name: str) -> str:
    """Return the text as a part of a URL."""
    return str(httpx.QueryParams({"x": evil(name)}))[2:].replace("+", "%20").replace("/", "%2F")


Seeded = dict[str, str]


async def seed(db: Database) -> Seeded:
    """Put the texts into the database, and return the paths of the objects that have their own pages."""
    await _fleet(db)
    seeded = await _tasks(db)
    seeded["call"] = await _calls(db, seeded["ran"])
    seeded["run"] = await _runs(db)
    seeded["entry"] = await _journal(db)
    seeded["vectorizer"] = await _vectorizer(db)
    return seeded


async def _fleet(db: Database) -> None:
    member = Member(
        id=evil("worker"),
        capabilities=Capabilities(task_types=[evil("type"), evil("capability")]),
        queues=[evil("queue")],
        host=evil("host"),
        version=evil("version"),
        region=evil("region"),
    )
    await db.workers.register(member)
    await db.execute(
        "UPDATE workers SET resource_usage = %s WHERE id = %s",
        [orjson.dumps({"memory_mb": evil("memory"), "cpu_percent": evil("load")}).decode(), evil("worker")],
    )
    details = {"error_message": evil("slot error")}
    await db.execute(
        "INSERT INTO public.health (component, status, queue, host, details_json)"
        " VALUES (%s, 'starting', %s, %s, %s)",
        [evil("slot"), evil("queue"), evil("slot host"), orjson.dumps(details).decode()],
    )
    await db.events.note(
        evil("event"), worker_id=evil("worker"), component=evil("slot"), details={evil("key"): evil("detail")}
    )
    for rule, subject in (("queue_too_old", evil("queue")), (evil("rule"), "s")):
        await db.execute(
            "INSERT INTO shiftboss.alerts (rule, subject, severity, message, advice, started_at, seen_at)"
            " VALUES (%s, %s, 'warning', %s, %s, now(), now())",
            [rule, subject, evil("alert"), evil("advice")],
        )
    soon = datetime.now(UTC) + timedelta(days=1)
    task = {
        "task_type": evil("type"), "queue": evil("queue"), "tenant": evil("tenant"),
        "params": {evil("key"): evil("params")}, "requires": {evil("need"): True},
    }  # fmt: skip
    await db.schedules.put(evil("schedule"), "0 3 * * *", "UTC", task, "latest", soon)
    operations = Operations(db, Settings.load({"SHIFTBOSS_DATABASE_URL": db.url}))
    who = Principal(evil("actor"), Role.ADMIN)
    await operations.create_token(who, evil("token"), Role.VIEWER)
    await operations.set_tenant_weight(who, evil("tenant"), 2.0)
    await operations.pause_queue(who, evil("queue"), evil("pause"))


async def _tasks(db: Database) -> Seeded:
    """Create a task that asks a question, one that waits for a child, and one that ran and failed once."""
    fields = {
        "title": evil("field"), "description": evil("about"), "type": "string", "default": evil("default"),
    }  # fmt: skip
    schema = {"properties": {"x": fields, "y": {"enum": [evil("choice")], "title": "Y"}}}
    document = orjson.dumps(schema).decode()
    await db.execute(
        "INSERT INTO shiftboss.task_schemas (task_type, schema, version, worker_id, published_at)"
        " VALUES (%s, %s, '1', 'w', now())",
        [evil("type"), document],
    )
    new = NewTask(
        task_type=evil("type"), queue=evil("queue"), params={"x": evil("params")}, tenant=evil("tenant")
    )
    asking, ran = await db.tasks.enqueue([new, new])
    await db.execute("UPDATE tasks SET hold = 'event' WHERE id = %s", [asking.id])
    await db.execute(
        "INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, attempt, lease, started_at, question,"
        " schema) VALUES (%s, 'event', %s, 1, 'waiting', 1, 1, now(), %s, %s)",
        [asking.id, evil("step"), evil("question"), document],
    )
    await db.tasks.resume("queue", evil("queue"))
    (task,) = await db.tasks.claim(evil("worker"), 1)
    await db.tasks.pause("queue", evil("queue"), evil("pause"))
    assert task.id == ran.id
    await _life(db, task)
    (held,) = await db.tasks.enqueue([new])
    return {"asking": str(asking.id), "ran": str(ran.id), "held": str(held.id)}


async def _life(db: Database, task: Any) -> None:
    await db.steps.append([Part(task.id, task.lease, None, orjson.dumps(evil("part")))])
    result = orjson.dumps({evil("key"): evil("result")})
    await db.steps.store([Step(task.id, task.lease, evil("step"), 1, 0.1, result)])
    await db.logs.append(
        [LogLine(task.id, task.lease, 1, evil("log step"), time.time(), 30, "t", evil("log"), 0)]
    )
    await db.execute(
        "INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, attempt, lease, started_at, ended_at,"
        " question, answered_by) VALUES (%s, 'event', 'q', 1, 'done', 1, 1, now(), now(), %s, %s)",
        [task.id, evil("question"), evil("answerer")],
    )
    await db.events.note(
        evil("event"), task_id=task.id, worker_id=evil("worker"), details={"x": evil("detail")}
    )
    await db.execute(
        "INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome,"
        " error) VALUES (%s, 1, 1, %s, now(), now(), 'failed', %s)",
        [task.id, evil("worker"), f"{evil('attempt')}\n{evil('traceback')}"],
    )
    await db.execute("UPDATE shiftboss.past_attempts SET error_group = 'abc'")
    await db.execute(
        "INSERT INTO shiftboss.error_groups (id, error_type, place, message, first_seen, last_seen, count,"
        " task_types, task_id) VALUES ('abc', %s, %s, %s, now(), now(), 1, %s, %s)",
        [evil("group"), evil("place"), evil("message"), [evil("type")], task.id],
    )
    await db.execute(
        "UPDATE tasks SET error_message = %s, status = 'Failed', progress = 3, progress_message = %s,"
        " result_data = %s, generation_processed_at = now() WHERE id = %s",
        [
            f"{evil('error')}\n{evil('traceback')}",
            evil("progress"),
            orjson.dumps({"x": evil("end")}).decode(),
            task.id,
        ],
    )


async def _calls(db: Database, task: str) -> str:
    engine, id = db.family(AIEngine), uuid4()
    call: dict[str, Any] = {
        "call_id": str(id), "provider": evil("provider"), "model": evil("model"), "kind": "completion",
        "task_type": evil("type"), "task_id": task, "tenant": evil("tenant"), "key": evil("ai key"),
        "template": evil("template"), "template_version": evil("revision"), "outcome": "error",
        "prompt_tokens": 1, "completion_tokens": 1, "cost": 0, "latency_ms": 5.0, "error": evil("error"),
        "finish_reason": evil("finish"), "started_at": datetime.now(UTC).isoformat(),
        "prompt": {"messages": [{"role": evil("role"), "content": evil("prompt")}]},
        "answer": {"text": evil("answer"), "tool_calls": [{"name": evil("tool")}]},
    }  # fmt: skip
    await engine.ai_configure(
        evil("provider"), model=evil("model"), requests_per_minute=None, tokens_per_minute=None,
        daily_budget=None, failure_limit=5, recovery=30,
    )  # fmt: skip
    await engine.record_calls([call], 60.0)
    await engine.set_ai_limit("tenant", evil("tenant"), daily_budget=5.0)
    return str(id)


async def _runs(db: Database) -> str:
    """Create a run that failed, and one that is active."""
    runs = db.family(Runs)
    failed = await runs.start_run(
        evil("bot"), evil("city"), evil("category"), {evil("key"): evil("params")}, requested_by=evil("actor")
    )
    await db.execute(
        "UPDATE worker_runs SET status = 'failed', finished_at = now(), error_message = %s, counters = %s"
        " WHERE id = %s",
        [evil("run error"), orjson.dumps({evil("counter"): 1}).decode(), failed.id],
    )
    active = await runs.start_run(evil("active bot"), evil("city"), None, {}, requested_by="x")
    await db.execute("UPDATE worker_runs SET message = %s WHERE id = %s", [evil("doing"), active.id])
    return str(failed.id)


async def _journal(db: Database) -> str:
    journal, raw = db.family(Journal), {"id": evil("external"), "user": evil("writer"), "date": "2030-05-01"}
    (entry,) = await journal.upsert_entries([parse(raw | {"text": evil("text")}).row()])
    insight = {"key": "k", "kind": "trend", "text": evil("insight"), "confidence": 0.9, "evidence": []}
    await journal.store_insights(evil("writer"), [insight])
    results = {
        "data_normalization": {"title": evil("title")},
        "emotion_detection": {"dominant_emotion": evil("emotion")},
        "theme_identification": {"primary_themes": [{"theme": evil("theme")}]},
        "sentiment_analysis": {"overall_sentiment": {"score": 0.5}, evil("key"): evil("finding")},
    }
    about = {"entry_id": str(entry["id"]), "revision": 1, "input_hash": "h", "confidence_score": 0.9}
    await journal.store_results(
        [about | {"task_type": name, "processed_data": data} for name, data in results.items()]
    )
    found = [
        {"kind": kind, "key": kind, "name": evil(f"the {kind}"), "confidence": 0.9}
        for kind in ("person", "place", "concept")
    ]
    await journal.store_mentions([{"entry_id": str(entry["id"]), "revision": 1, "mentions": found}])
    return str(entry["id"])


async def _vectorizer(db: Database) -> str:
    """Create a vectorizer with a chunk that a search finds, and with a row that could not be embedded."""
    table, column = (_identifier(evil(name)) for name in ("table", "column"))
    await db.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, {column} text)")
    await db.execute(f"INSERT INTO {table} VALUES (1, %s)", [evil("chunk")])
    vectorizers = db.family(Vectorizers)
    id = await vectorizers.create(table, name=evil("vectorizer"), columns=[evil("column")])
    async with await AI.open(None, db, environment={}) as ai:
        await VectorizerWorker(db, ai, once=True).run()
    await db.execute(
        "INSERT INTO ai._vectorizer_error (vectorizer_id, key, step, reason, attempts, final, failed_at)"
        " VALUES (%s, %s, %s, %s, 1, true, now())",
        [id, orjson.dumps([evil("row")]).decode(), evil("stage"), evil("reason")],
    )
    await db.execute(
        "UPDATE ai.vectorizer SET deferred_until = now() + interval '1 day', defer_reason = %s,"
        " base_url = %s, api_key_name = %s WHERE id = %s",
        [evil("defer"), evil("base"), evil("variable"), id],
    )
    return str(id)


def _identifier(name: str) -> str:
    return '"' + re.sub('"', '""', name) + '"'
