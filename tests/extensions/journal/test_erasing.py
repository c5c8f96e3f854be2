"""A deleted entry leaves nothing behind; a writer can be exported and erased."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.extensions.journal import commands
from shiftboss.extensions.journal.pipeline import Pipeline
from shiftboss.extensions.journal.reading import read
from shiftboss.model.errors import NotFound

from .conftest import CountingAI, drain, run, sample, write

HOLDERS = (
    "journal.entries",
    "journal.results",
    "journal.user_results",
    "journal.embeddings",
    "journal.entities",
    "journal.insights",
    "shiftboss.ai_cache",
    "shiftboss.ai_call_texts",
    "shiftboss.steps",
    "public.tasks",
)
SECRET = {
    "user": "mara",
    "id": "secret",
    "date": "2024-03-03T10:00:00",
    "text": "Met Zebulon in Zanzibar and told him everything. I was so happy and relieved.",
}


async def traces(db: Database, word: str) -> list[str]:
    """The tables with a row that has this word in any column."""
    found = []
    for table in HOLDERS:
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
