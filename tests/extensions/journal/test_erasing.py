"""A deleted entry leaves nothing behind; a writer can be exported and erased."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.settings import AISettings, OpenAISettings, RetrySettings
from shiftboss.extensions.journal import commands
from shiftboss.extensions.journal.pipeline import Pipeline
from shiftboss.extensions.journal.reading import read
from shiftboss.model.errors import NotFound

from .conftest import CountingAI, drain, run, sample, write

SECRET = {
    "user": "mara",
    "id": "secret",
    "date": "2024-03-03T10:00:00",
    "text": "Met Zebulon in Zanzibar and told him everything. I was so happy and relieved.",
}


async def traces(db: Database, word: str) -> list[str]:
    """The tables of the whole database with a row that has this word in any column."""
    tables = await db.fetch(
        "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables "
        "WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
    )
    found = []
    for table in (row["name"] for row in tables):
        row = await db.fetch_one(f"SELECT count(*) AS n FROM {table} x WHERE x::text ILIKE %s", [f"%{word}%"])
        found += [table] if row and row["n"] else []
    return found


async def findings(db: Database, user: str) -> dict[str, Any]:
    """Everything found about a writer, without ids and times."""
    insights = [
        (i["key"], i["text"], i["confidence"], i["evidence"]) for i in await db.journal.insights(user)
    ]
    results = {name: row["processed_data"] for name, row in (await db.journal.user_results(user)).items()}
    entries = await db.journal.load_entries(await db.journal.entry_ids(user))
    contexts = {
        (row["external_id"], name): found["processed_data"]
        for row in entries
        for name, found in row["results"].items()
    }
    entities = [(e["kind"], e["name"], e["mentions"]) for e in await db.journal.entities(user)]
    return {"insights": insights, "results": results, "contexts": contexts, "entities": entities}


async def again(db: Database, pipeline: Pipeline, user: str) -> None:
    await run(pipeline, await db.journal.unprocessed(user))


@pytest.mark.parametrize("how", ["command", "sql"])
async def test_a_deleted_entry_might_never_have_been_written(
    db: Database, pipeline: Pipeline, how: str
) -> None:
    kept = sample("mara")[:9]
    await run(pipeline, await write(db, *kept, *({**one, "user": "control"} for one in kept), SECRET))
    assert {"journal.entities", "journal.results"} <= set(await traces(db, "Zebulon"))
    if how == "command":
        tasks = await commands.delete(db, "secret")
        assert tasks, "what was found with its help is made again"
    else:
        await db.execute("DELETE FROM journal.entries WHERE external_id = 'secret'")
    for word in ("Zebulon", "Zanzibar", "secret"):
        assert await traces(db, word) == []
    await again(db, pipeline, "mara")
    assert await findings(db, "mara") == await findings(db, "control")


async def test_tasks_of_a_deleted_entry_end_well(db: Database, pipeline: Pipeline) -> None:
    (row,) = await write(db, SECRET)
    await commands.delete(db, str(row["id"]))
    assert (await pipeline.run_stage("content_analysis", row["id"]))["deleted"]
    with pytest.raises(NotFound):
        await commands.delete(db, str(row["id"]))


async def test_the_tasks_of_a_deleted_entry_forget_what_they_found(db: Database, ai: CountingAI) -> None:
    rows = await write(db, SECRET)
    await drain(db, ai, rows)
    assert "shiftboss.steps" in await traces(db, "Zebulon")
    await commands.erase(db, "mara")
    assert await traces(db, "Zebulon") == []
    row = await db.fetch_one("SELECT count(*) AS n FROM shiftboss.steps")
    assert row is not None
    assert row["n"] == 0


async def test_a_journal_is_exported_erased_and_imported_again(
    db: Database, pipeline: Pipeline, tmp_path: Path
) -> None:
    import orjson

    await run(pipeline, await write(db, *sample("mara")[:4], {**SECRET, "user": "other"}))
    lines = [orjson.dumps(entry) async for entry in commands.export(db, "mara")]
    file = tmp_path / "mara.jsonl"
    file.write_bytes(b"\n".join(lines))
    assert await commands.erase(db, "mara") == 4
    assert await db.fetch("SELECT FROM journal.users WHERE id = 'mara'") == []
    assert [row["user_id"] for row in await db.journal.status()] == ["other"]
    counts = [await db.fetch(f"SELECT FROM journal.{name} WHERE user_id = 'mara'") for name in
              ("entries", "user_results", "embeddings", "entities", "insights")]  # fmt: skip
    assert counts == [[]] * 5
    done = await commands.import_entries(db, read([file]), process=False)
    assert done.outcomes["new"] == 4
    with pytest.raises(NotFound):
        await commands.erase(db, "nobody")


async def test_a_provider_that_quotes_the_entry_leaves_no_trace_of_it(db: Database) -> None:
    """The errors that a task, its attempts, its log and the calls keep do not have the writer's words."""
    async with echoing() as url:
        openai = OpenAISettings(api_key="k", base_url=url, timeout=5)
        settings = AISettings(providers=["openai"], openai=openai, retry=RetrySettings(attempts=1))
        async with await AI.open(settings, db) as ai:
            ended = await drain(db, ai, await write(db, SECRET))
    assert "Failed" in {row.status for row in ended}
    kept = ["journal.entries", "shiftboss.ai_call_texts"]
    assert [await traces(db, word) for word in ("Zebulon", "Zanzibar", "relieved")] == [kept] * 3
    row = await db.fetch_one("SELECT error FROM shiftboss.ai_calls WHERE error IS NOT NULL")
    assert row is not None
    assert row["error"].startswith("openai: request rejected (400): bad_input: cannot use [request text]")
    # Earlier versions stored such errors as they came.
    await db.execute("UPDATE shiftboss.ai_calls SET error = 'about Zebulon' WHERE error IS NOT NULL")
    await db.execute("UPDATE shiftboss.ai_providers SET last_error = 'about Zebulon'")
    await db.execute("UPDATE public.tasks SET error_message = 'about Zebulon'")
    await db.execute("UPDATE shiftboss.past_attempts SET error = 'about Zebulon'")
    await db.execute("UPDATE shiftboss.task_logs SET message = 'about Zebulon'")
    await db.execute("UPDATE shiftboss.error_tallies SET error = 'ValueError: about Zebulon'")
    await db.execute("SELECT shiftboss.fold_errors()")
    assert "shiftboss.error_groups" in await traces(db, "Zebulon")
    await commands.erase(db, "mara")
    assert await traces(db, "Zebulon") == []


@asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """A server that answers every request with a 400 that quotes its last message."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        request = json.loads(await reader.readexactly(int(length.split(b":")[1])))
        text = "cannot use " + request["messages"][-1]["content"].partition(">")[2]
        body = json.dumps({"error": {"message": text, "code": "bad_input"}, "request": request}).encode()
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
