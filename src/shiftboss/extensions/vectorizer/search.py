"""Searches by meaning, by words, or by both. The vectorizer's own model embeds the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from shiftboss.db import Database, Row
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.vectorizer.embed import Embed, Embedder
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.model.errors import DatabaseError

Mode = Literal["vector", "hybrid", "text"]
REPLACED = "55000"  # the vectors were replaced after the query was embedded
TRIES = 3


async def search(
    db: Database,
    embedder: Embedder,
    which: int | str,
    question: str,
    limit: int = 10,
    *,
    mode: Mode = "vector",
    filter: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Return the best matching chunks: distance, key, chunk_seq, chunk, source and score.

    `filter` has conditions on columns of the source: `{"lang": "en", "hits": {">=": 5}, "tag": ["a", "b"]}`.
    """
    if mode == "text":
        return await db.family(Vectorizers).search_text(which, question, limit, filter)
    for attempt in range(TRIES):
        vectorizer = await db.family(Vectorizers).get(which)
        if vectorizer.replaces is not None:
            vectorizer = await db.family(Vectorizers).get(vectorizer.replaces)
        made = await Embed(vectorizer, embedder).query(question)
        text = question if mode == "hybrid" else None
        try:
            return await db.family(Vectorizers).search(
                vectorizer.id, made.vectors, limit, text=text, filter=filter, generation=vectorizer.generation
            )
        except DatabaseError as error:
            if error.sqlstate != REPLACED or attempt + 1 == TRIES:
                raise
    raise AssertionError("at least one attempt is made")


async def find(
    which: int | str,
    question: str,
    limit: int = 10,
    *,
    mode: Mode = "vector",
    filter: Mapping[str, Any] | None = None,
    url: str | None = None,
) -> list[Row]:
    """Search with the database and the AI engine of the settings."""
    from shiftboss.db import Database
    from shiftboss.extensions.ai import AI
    from shiftboss.model.settings import Settings

    async with await Database.open(url) as db, await AI.open(AISettings.of(Settings.load()), db) as ai:
        return await search(db, ai, which, question, limit, mode=mode, filter=filter)
