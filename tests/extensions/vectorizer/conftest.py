"""Embedders for tests: the real local one, and one that tests can slow down, break and watch."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Embeddings
from shiftboss.extensions.ai.errors import Unsuitable
from shiftboss.extensions.vectorizer.embed import Embedder
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.worker import VectorizerWorker


class Steered:
    """Vectors from the text's hash. `before` runs at each call; a text that contains `poison` is refused."""

    def __init__(self, dimensions: int = 8) -> None:
        self.dimensions = dimensions
        self.calls: list[list[str]] = []
        self.before: Callable[[Sequence[str]], Any] | None = None
        self.busy = 0
        self.most_busy = 0

    async def embed(
        self, texts: Sequence[str], model: str | None = None, provider: str | None = None, **_: Any
    ) -> Embeddings:
        self.calls.append(list(texts))
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            if self.before is not None and asyncio.iscoroutine(found := self.before(texts)):
                await found
            if any("poison" in text for text in texts):
                raise Unsuitable("steered", "one of the texts is refused")
        finally:
            self.busy -= 1
        vectors = np.stack([vector_of(text, self.dimensions) for text in texts])
        return Embeddings(vectors, provider or "local", model or "steered")


def vector_of(text: str, dimensions: int = 8) -> np.ndarray[Any, Any]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    return np.random.default_rng(seed).normal(size=dimensions).astype(np.float32)


@pytest.fixture
def steered() -> Steered:
    return Steered()


@pytest.fixture
async def ai(db: Database) -> AsyncIterator[AI]:
    async with await AI.open(None, db, environment={}) as engine:
        yield engine


async def work(db: Database, embedder: Embedder, **settings: Any) -> VectorizerWorker:
    """Work until nothing is due."""
    worker = VectorizerWorker(db, embedder, settings=VectorizerSettings(**settings), once=True)
    await worker.run()
    assert worker.errors == {}
    return worker


async def make(db: Database, source: str = "blog", **options: Any) -> int:
    """A vectorizer of 8 dimensions without an index, over column `body`."""
    given = {"columns": ["body"], "dimensions": 8, "index_method": "none"} | options
    return await db.vectorizers.create(source, **given)


async def blog(db: Database, rows: int = 3) -> None:
    await db.execute("CREATE TABLE blog (id int PRIMARY KEY, title text, body text, hits int DEFAULT 0)")
    await db.execute(
        "INSERT INTO blog SELECT n, 'title ' || n, 'body ' || n FROM generate_series(1, %s) n", [rows]
    )


async def one(db: Database, query: str, *params: Any) -> Any:
    """The single value of a query."""
    row = await db.fetch_one(query, params)
    assert row is not None
    return next(iter(row.values()))
