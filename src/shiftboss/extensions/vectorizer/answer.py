"""Embeds the queries of `ai.embed_query`, which PostgreSQL cannot embed itself."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from shiftboss.db import Database, Row
from shiftboss.extensions.vectorizer.embed import Embed, Embedder
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.model.errors import ShiftbossError

LEASE = timedelta(seconds=60)


async def answer_queries(
    db: Database, embedder: Embedder, only: Sequence[int] | None = None, ids: Sequence[int] | None = None
) -> dict[int, str | None]:
    """Embed open queries, and return the error of each, or None.

    `only` limits them to some vectorizers, `ids` to some queries. Each vectorizer makes one provider call.
    """
    asked: dict[int, list[Row]] = defaultdict(list)
    for row in await db.family(Vectorizers).claim_queries(only, LEASE, ids):
        asked[row["vectorizer_id"]].append(row)
    answers = await asyncio.gather(*(_answer(db, embedder, id, rows) for id, rows in asked.items()))
    return {id: error for some in answers for id, error in some.items()}


async def _answer(
    db: Database, embedder: Embedder, vectorizer_id: int, asked: Sequence[Row]
) -> dict[int, str | None]:
    generation = 0
    made: Sequence[Sequence[float] | ShiftbossError]
    try:
        vectorizer = await db.family(Vectorizers).get(vectorizer_id)
        generation = vectorizer.generation or 0
        made = await Embed(vectorizer, embedder).queries([row["query"] for row in asked])
    except ShiftbossError as trouble:
        made = [trouble] * len(asked)
    errors: dict[int, str | None] = {}
    for row, one in zip(asked, made, strict=True):
        failed = isinstance(one, ShiftbossError)
        embedding = None if isinstance(one, ShiftbossError) else [float(number) for number in one]
        errors[row["id"]] = str(one) if failed else None
        await db.family(Vectorizers).answer_query(row["id"], generation, embedding, errors[row["id"]])
    return errors
