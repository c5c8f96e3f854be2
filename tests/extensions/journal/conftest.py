"""A pipeline over a real database with the local provider, and an AI that counts what it is asked."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.resources import files
from typing import Any
from unittest.mock import AsyncMock

import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Answer, Embeddings
from shiftboss.extensions.journal import graph
from shiftboss.extensions.journal.handlers import handlers
from shiftboss.extensions.journal.parsing import parse
from shiftboss.extensions.journal.pipeline import ENTRY_STAGES, Pipeline
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import FINAL
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource
from tests.conftest import TEMPLATE, _fresh

SAMPLE = files("shiftboss.extensions.journal") / "sample"


class CountingAI(AI):
    """The real thing; `asked` counts requests by task type."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.asked: Counter[str] = Counter()
        self.embedded: list[int] = []

    async def complete(self, prompt: str | None = None, **ask: Any) -> Answer[Any]:
        self.asked[ask["template"]] += 1
        return await super().complete(prompt, **ask)

    async def embed(self, texts: Sequence[str], *args: Any, **kwargs: Any) -> Embeddings:
        self.asked["embed"] += len(texts)
        self.embedded.append(len(texts))
        return await super().embed(texts, *args, **kwargs)


@pytest.fixture
async def ai() -> AsyncIterator[AI]:
    async with await CountingAI.open() as engine:
        yield engine


@pytest.fixture
def pipeline(db: Database, ai: CountingAI) -> Pipeline:
    return Pipeline(db, ai)


@pytest.fixture(scope="session")
def analysed_url(server_url: str) -> Iterator[str]:
    """A database with the whole sample analysed, made once; for tests that only look."""
    for url in _fresh(server_url, TEMPLATE):
        asyncio.run(_analyse(url))
        yield url


async def _analyse(url: str) -> None:
    async with await Database.open(url) as db, await CountingAI.open() as ai:
        await run(Pipeline(db, ai), await write(db, *sample()))


@pytest.fixture
async def analysed(analysed_url: str) -> AsyncIterator[Database]:
    async with await Database.open(analysed_url) as db:
        yield db


def sample(*users: str) -> list[dict[str, Any]]:
    names = users or ("mara", "jonas", "priya")
    return [
        json.loads(line) for name in names for line in (SAMPLE / f"{name}.jsonl").read_text().splitlines()
    ]


async def write(db: Database, *records: dict[str, Any]) -> list[Any]:
    """Put raw records into the journal; their rows with id and outcome."""
    return await db.journal.upsert_entries([parse(record).row() for record in records])


async def drain(db: Database, ai: AI, rows: Sequence[Any]) -> list[Any]:
    """The graph of these entries by a worker of this process that asks this AI; how its tasks ended."""
    ids = await graph.enqueue(db, rows)
    member = Member(id="journalist", capabilities=Capabilities(task_types=list(handlers.by_name)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("shiftboss.extensions.journal.handlers.engine_of", AsyncMock(return_value=ai))
        async with Worker(
            DatabaseSource(db), handlers, member, WorkerSettings(concurrency=8, lease_seconds=120), db=db
        ):
            async with asyncio.timeout(90):
                while any(row.status not in FINAL for row in await db.tasks.watch(ids)):
                    await asyncio.sleep(0.05)
    return list(await db.tasks.watch(ids))


async def run(pipeline: Pipeline, rows: Sequence[Any]) -> None:
    """All stages, in this process, each from what the one before has stored."""
    for stage in ENTRY_STAGES:
        await asyncio.gather(*(pipeline.run_stage(stage, row["id"]) for row in rows))
    for user in dict.fromkeys(row["user_id"] for row in rows):
        await pipeline.contextual_processing(user)
        await pipeline.cross_entry_analysis(user)
        await pipeline.insight_generation(user)
