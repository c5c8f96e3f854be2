"""Repeated work changes nothing, an edit recomputes only what depends on it, and late results are ignored."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import Answer, Embeddings
from shiftboss.extensions.journal import commands
from shiftboss.extensions.journal.entry import Result
from shiftboss.extensions.journal.handlers import handlers
from shiftboss.extensions.journal.pipeline import Pipeline, _row
from shiftboss.model.errors import Defer, UsageError

from .conftest import CountingAI, run, sample, write

TABLES = (
    "entries",
    "results",
    "user_results",
    "embeddings",
    "entities",
    "mentions",
    "cross_references",
    "insights",
)


async def everything(db: Database) -> dict[str, Any]:
    return {table: sorted(map(repr, await db.fetch(f"SELECT * FROM journal.{table}"))) for table in TABLES}


async def test_the_same_again_changes_nothing_and_asks_nobody(
    db: Database, pipeline: Pipeline, ai: CountingAI
) -> None:
    some = sample("mara")[:8]
    await run(pipeline, await write(db, *some))
    before = await everything(db)
    ai.asked.clear()
    rows = await write(db, *some)
    assert {row["outcome"] for row in rows} == {"same"}
    await run(pipeline, rows)
    assert ai.asked == {}
    assert await everything(db) == before


async def test_a_changed_text_redoes_one_entry_only(db: Database, pipeline: Pipeline, ai: CountingAI) -> None:
    some = sample("mara")[:6]
    rows = await write(db, *some)
    await run(pipeline, rows)
    stamps = await stored_at(db)
    ai.asked.clear()
    some[2]["parts"][0]["content"] += " And then it was a terrible evening, I am so sad and angry."
    changed = [row for row in await write(db, *some) if row["outcome"] == "changed"]
    assert [(row["external_id"], row["revision"]) for row in changed] == [(some[2]["id"], 2)]
    await run(pipeline, changed)
    assert ai.asked == {
        "raw_data_parsing": 1, "content_extraction": 1, "sentiment_analysis": 1, "theme_identification": 1,
        "emotion_detection": 1, "activity_recognition": 1, "embed": 1, "insight_generation": 1,
    }  # fmt: skip
    redone = {key for key, stamp in (await stored_at(db)).items() if stamps[key] != stamp}
    others = {task_type for external_id, task_type in redone if external_id != some[2]["id"]}
    assert others <= {"user_context", "temporal_context", "relationship_context", "cross_reference_embedding"}
    # What was written before the edited entry does not look back on it.
    past = {some[0]["id"], some[1]["id"]}
    assert {t for e, t in redone if e in past} <= {"cross_reference_embedding"}


async def stored_at(db: Database) -> dict[tuple[str, str], Any]:
    rows = await db.fetch(
        "SELECT e.external_id, r.task_type, r.stored_at FROM journal.results r "
        "JOIN journal.entries e ON e.id = r.entry_id"
    )
    return {(row["external_id"], row["task_type"]): row["stored_at"] for row in rows}


async def test_a_changed_tag_asks_nothing_about_the_text(
    db: Database, pipeline: Pipeline, ai: CountingAI
) -> None:
    record = sample("mara")[0]
    await run(pipeline, await write(db, record))
    ai.asked.clear()
    record["tags"].append("milestone")
    rows = await write(db, record)
    await run(pipeline, rows)
    assert ai.asked == {"embed": 1}  # the tag is part of what is embedded
    entry = await pipeline.entry(rows[0]["id"])
    assert "milestone" in entry.results["data_normalization"].processed_data["tags"]


async def test_two_records_with_one_id_are_one_entry(db: Database) -> None:
    first = sample("mara")[0]
    second = first | {"tags": ["later"]}
    rows = await write(db, first, second)
    assert len(rows) == 1
    found = await db.journal.load_entries([rows[0]["id"]])
    assert found[0]["metadata"]["tags"] == ["later"]


async def test_a_late_result_of_an_older_revision_changes_nothing(db: Database, pipeline: Pipeline) -> None:
    record = sample("mara")[0]
    rows = await write(db, record)
    old = await pipeline.entry(rows[0]["id"])
    record["tags"] = ["new"]
    await write(db, record)
    late = Result("sentiment_analysis", {"old": True}, 0.5, "hash-of-old")
    assert await db.journal.store_results([_row(old, late)]) == 0
    assert (await pipeline.entry(old.id)).results == {}


class FailingAI(CountingAI):
    """One task type cannot be answered."""

    broken = True

    async def complete(self, prompt: str | None = None, **ask: Any) -> Answer[Any]:
        if ask["template"] == "emotion_detection" and self.broken:
            raise ValueError("no answer")
        return await super().complete(prompt, **ask)


async def test_what_was_found_before_an_error_is_kept(db: Database) -> None:
    async with await FailingAI.open() as ai:
        pipeline = Pipeline(db, ai)
        rows = await write(db, sample("mara")[0])
        with pytest.raises(ValueError, match="no answer"):
            await pipeline.run_stage("content_analysis", rows[0]["id"])
        assert "sentiment_analysis" in (await pipeline.entry(rows[0]["id"])).results
        ai.asked.clear()
        ai.broken = False
        await pipeline.run_stage("content_analysis", rows[0]["id"])
        assert ai.asked == {"emotion_detection": 1}


async def test_the_same_user_may_be_processed_by_many_at_once(
    db: Database, pipeline: Pipeline, ai: CountingAI
) -> None:
    rows = await write(db, *sample("mara")[:10])
    await run(pipeline, rows)
    before = await everything(db)
    for table in ("mentions", "entities", "cross_references"):
        await db.execute(f"DELETE FROM journal.{table}")
    await db.journal.forget_results("cross_reference_embedding")
    await asyncio.gather(*(pipeline.contextual_processing("mara") for _ in range(6)))
    after = await everything(db)
    assert len(after["mentions"]) == len(before["mentions"])
    assert after["cross_references"] == before["cross_references"]


async def test_forgotten_results_are_made_anew(db: Database, pipeline: Pipeline, ai: CountingAI) -> None:
    rows = await write(db, *sample("mara")[:2])
    await run(pipeline, rows)
    ai.asked.clear()
    assert await commands.process(db, again=["embedding_generation"])
    assert len(await db.journal.unprocessed()) == 2
    await run(pipeline, rows)
    assert ai.asked == {"embed": 2}
    assert await db.journal.unprocessed() == []
    with pytest.raises(UsageError, match="there is no result 'nonsense'"):
        await commands.process(db, again=["nonsense"])


async def test_what_does_not_exist_is_a_clear_error(pipeline: Pipeline) -> None:
    from uuid import uuid4

    with pytest.raises(UsageError, match="there is no journal entry"):
        await pipeline.run_step("sentiment_analysis", uuid4())
    gone = uuid4()  # deleted while its task waited
    assert await pipeline.run_stage("data_structuring", gone) == {
        "entry": str(gone),
        "new": [],
        "deleted": True,
    }
    with pytest.raises(UsageError, match="there is no journal of 'nobody'"):
        await pipeline.contextual_processing("nobody")


async def test_tasks_that_meet_no_database_all_come_again(database_url: str) -> None:
    db = await Database.open(database_url)
    await db.close()
    ctx: Any = SimpleNamespace(db=db)
    handle = handlers.named("journal.data_structuring").function
    outcomes = await asyncio.gather(*(handle(ctx, uuid4()) for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Defer] * 3


async def test_an_entry_that_comes_between_two_stages_of_its_writer(db: Database, pipeline: Pipeline) -> None:
    first = await write(db, *sample("mara")[:3])
    await run(pipeline, first)
    late = await write(db, sample("mara")[3])
    await pipeline.run_stage("vector_generation", late[0]["id"])
    await db.execute("DELETE FROM journal.user_results")
    await pipeline.cross_entry_analysis("mara")
    assert (await pipeline.insight_generation("mara"))["new"]


async def test_a_changed_entry_is_not_processed_before_it_is_analysed(
    db: Database, pipeline: Pipeline
) -> None:
    record = sample("mara")[0]
    rows = await write(db, record)
    await run(pipeline, rows)
    changed = await write(db, record | {"text": "Everything is different now."})
    await pipeline.contextual_processing("mara")
    assert [row["id"] for row in await db.journal.unprocessed()] == [changed[0]["id"]]
    await run(pipeline, changed)
    assert await db.journal.unprocessed() == []


async def test_a_text_that_is_no_name_is_not_taken_for_one(db: Database, pipeline: Pipeline) -> None:
    place = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(200))
    rows = await write(db, sample("mara")[0] | {"location": place})
    await run(pipeline, rows)
    assert await db.journal.unprocessed() == []


async def test_vectors_of_any_length_are_stored(db: Database) -> None:
    class Long(CountingAI):
        async def embed(self, texts: Sequence[str], *args: Any, **kwargs: Any) -> Embeddings:
            return Embeddings(np.ones((len(texts), 3072), np.float32), "openai", "text-embedding-3-large")

    async with await Long.open() as ai:
        await run(Pipeline(db, ai), await write(db, sample("mara")[0]))
        [found] = await commands.search(db, ai, "anything")
    assert found["score"] > 0.5  # the cosine is 1, and no term is in common


async def test_an_index_that_is_there_waits_for_no_writer(db: Database) -> None:
    await db.journal.index_dimensions(8)
    async with db.transaction() as conn, asyncio.timeout(10):
        await conn.execute("LOCK TABLE journal.embeddings IN ROW EXCLUSIVE MODE")
        await db.journal.index_dimensions(8)


async def test_an_insight_that_is_told_twice_is_kept_once(db: Database) -> None:
    await write(db, sample("mara")[0])
    told = {"key": "ai:1", "kind": "pattern", "text": "t", "confidence": 0.5, "evidence": []}
    assert await db.journal.store_insights("mara", [told, told | {"confidence": 0.7}]) == 1
    assert [row["confidence"] for row in await db.journal.insights("mara")] == [0.7]


async def test_insights_of_an_older_analysis_do_not_replace_newer_ones(db: Database) -> None:
    class Slow(CountingAI):
        meanwhile: Any = None

        async def complete(self, prompt: str | None = None, **ask: Any) -> Answer[Any]:
            answer = await super().complete(prompt, **ask)
            if ask["template"] == "insight_generation" and self.meanwhile is not None:
                then, self.meanwhile = self.meanwhile, None
                await then()
            return answer

    async with await Slow.open() as ai:
        pipeline = Pipeline(db, ai)
        await run(pipeline, await write(db, *sample("mara")[:6]))
        await db.execute("DELETE FROM journal.user_results WHERE task_type = 'insight_generation'")

        async def import_more() -> None:
            await run(pipeline, await write(db, *sample("mara")[6:12]))

        ai.meanwhile = import_more
        assert not (await pipeline.insight_generation("mara"))["new"]
        stored = await everything(db)
        assert not (await pipeline.insight_generation("mara"))["new"], "the newest are known"
        assert await everything(db) == stored
