"""Search: the question is embedded by the vectorizer's own model, the answer comes from its target table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.vectorizer.embed import Embed, Embedder

if TYPE_CHECKING:
    from shiftboss.db import Database, Row


async def search(
    db: Database, embedder: Embedder, which: int | str, question: str, limit: int = 10
) -> list[Row]:
    """The nearest chunks, nearest first: distance, key, chunk_seq, chunk, source."""
    vectorizer = await db.vectorizers.get(which)
    made = await Embed(vectorizer, embedder).query(question)
    return await db.vectorizers.search(vectorizer.counted_as, made.vectors, limit)
