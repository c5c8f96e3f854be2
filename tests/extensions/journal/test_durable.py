"""Paid answers are durable steps of their task, and entries are embedded in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from shiftboss.db import Database
from shiftboss.extensions.ai import Embeddings
from shiftboss.extensions.ai.errors import ProviderError
from shiftboss.extensions.journal.graph import PREFIX
from shiftboss.extensions.journal.vectors import VECTORS
from shiftboss.model.errors import DatabaseUnavailable
from shiftboss.model.task import Status

from .conftest import CountingAI, drain, sample, write

PAID = {"content_extraction", "sentiment_analysis", "theme_identification", "emotion_detection",
        "activity_recognition"}  # fmt: skip


async def test_what_was_answered_is_a_step_and_is_not_asked_for_again(db: Database, ai: CountingAI) -> None:
    """The database goes away when the findings are about to be stored: the task comes again."""
    [row] = await write(db, sample("mara")[0])
    store, away = db.journal.store_results, ["content_analysis", "data_structuring"]

    async def store_results(results: Any) -> int:
        if away:
            away.pop()
            raise DatabaseUnavailable("the server is shutting down")
        return int(await store(results))

    db.journal.store_results = store_results  # type: ignore[method-assign]
    ended = await drain(db, ai, [row])
    assert {one.status for one in ended} == {Status.COMPLETE}
    assert {name: ai.asked[name] for name in PAID} == dict.fromkeys(PAID, 1)
    steps = await db.fetch("SELECT split_part(name, ' ', 1) AS name FROM shiftboss.steps WHERE kind = 'step'")
    assert {one["name"] for one in steps} == {*PAID, "raw_data_parsing", "insight_generation"}
    assert len(steps) == len(PAID) + 2


async def test_many_entries_are_embedded_by_one_call(db: Database, ai: CountingAI, eventually: Any) -> None:
    stage = PREFIX + VECTORS.name
    rows = await write(db, *sample("mara")[:6])

    async def ready() -> bool:
        query = "SELECT FROM tasks WHERE task_type = %s AND status = 'Queued' AND hold IS NULL"
        return len(await db.fetch(query, [stage])) == 6

    await db.tasks.pause("task_type", stage)
    draining = asyncio.create_task(drain(db, ai, rows))
    await eventually(ready, timeout=60)
    await db.tasks.resume("task_type", stage)
    ended = await draining
    assert {one.status for one in ended} == {Status.COMPLETE}
    assert sum(ai.embedded) == 6
    assert len(ai.embedded) < 6
    assert len(await db.fetch("SELECT FROM journal.embeddings WHERE kind = 'content'")) == 6


class Squeamish(CountingAI):
    """Refuses a request with a certain word in it."""

    async def embed(self, texts: Sequence[str], *args: Any, **kwargs: Any) -> Embeddings:
        if any("unspeakable" in text for text in texts):
            raise Refused("mock", "that cannot be embedded")
        return await super().embed(texts, *args, **kwargs)


class Refused(ProviderError):
    of_request = True


async def test_a_text_that_is_refused_fails_alone(db: Database) -> None:
    bad = {"user": "mara", "id": "bad", "date": "2024-03-03T10:00:00", "text": "An unspeakable day in town."}
    async with await Squeamish.open() as ai:
        rows = await write(db, *sample("mara")[:3], bad)
        await drain(db, ai, rows)
    failed = await db.fetch(
        "SELECT params ->> 'item' AS entry, error_message FROM tasks WHERE status = 'Failed'"
    )
    assert [one["entry"] for one in failed] == [str(row["id"]) for row in rows if row["external_id"] == "bad"]
    assert "that cannot be embedded" in failed[0]["error_message"]
    assert len(await db.fetch("SELECT FROM journal.embeddings WHERE kind = 'content'")) == 3


async def test_an_embedding_that_was_paid_for_waits_for_the_database(db: Database, ai: CountingAI) -> None:
    rows = await write(db, *sample("mara")[:2])
    store, refused = db.journal.store_results, list[int]()

    async def store_results(results: Any) -> int:
        if any(one["vector"] for one in results) and len(refused) < 2:
            refused.append(len(results))
            raise DatabaseUnavailable("the server is shutting down")
        return int(await store(results))

    db.journal.store_results = store_results  # type: ignore[method-assign]
    assert {one.status for one in await drain(db, ai, rows)} == {Status.COMPLETE}
    assert sum(ai.embedded) == 2
    assert len(refused) == 2
