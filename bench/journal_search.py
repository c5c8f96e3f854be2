"""Semantic search at scale: latency and recall of the HNSW index against exact search.

    python bench/journal_search.py [--entries 100000] [--queries 200] [--users 100]

Vectors are those of the local provider for texts put together from the sentences of the sample journals, so
that they lie as close together as real entries do. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from shiftboss.db import Database
from shiftboss.extensions.ai.providers.local import embedder
from shiftboss.extensions.journal.demo import USERS
from shiftboss.extensions.journal.parsing import parse

EF = (40, 100, 200, 400)
LIMIT = 10
SAMPLE = Path(__file__).parent.parent / "src" / "shiftboss" / "extensions" / "journal" / "sample"


def sentences() -> list[str]:
    lines = [line for user in USERS for line in (SAMPLE / f"{user}.jsonl").read_text().splitlines()]
    parts = [part["content"] for line in lines for part in parse(json.loads(line)).parts]
    return [sentence.strip() for part in parts for sentence in part.split(".") if len(sentence) > 20]


def texts(count: int, seed: int) -> list[str]:
    draw, pool = random.Random(seed), sentences()
    return [". ".join(draw.sample(pool, draw.randint(2, 6))) for _ in range(count)]


async def fill(db: Database, count: int, users: int) -> float:
    """Insert entries and vectors by COPY. Returns the seconds for the vectors, including the index."""
    await db.execute(
        "INSERT INTO journal.users (id) SELECT 'user' || n FROM generate_series(0, %s) n", [users - 1]
    )
    await db.execute(
        "INSERT INTO journal.entries (user_id, external_id, content_hash, written_at, parts, source) "
        "SELECT 'user' || n %% %s, n::text, n::text, now() - n * interval '1 minute', "
        '\'[{"kind": "text", "content": "x"}]\', \'{}\' FROM generate_series(1, %s) n',
        [users, count],
    )
    ids = await db.fetch("SELECT id, user_id FROM journal.entries ORDER BY written_at")
    vectors = embedder.embed(texts(count, seed=1))
    started = time.perf_counter()
    async with db.transaction() as conn, conn.cursor() as cursor:
        await cursor.execute("SET LOCAL maintenance_work_mem = '1GB'")
        columns = "entry_id, kind, user_id, model, dimensions, vector"
        await cursor.execute("DROP INDEX journal.embeddings_hnsw_256")
        async with cursor.copy(f"COPY journal.embeddings ({columns}) FROM STDIN") as copy:
            for row, vector in zip(ids, vectors, strict=True):
                await copy.write_row(
                    (row["id"], "content", row["user_id"], embedder.MODEL, 256, str(vector.tolist()))
                )
        await cursor.execute("SELECT journal.index_dimensions(256)")
    await db.execute("ANALYZE journal.embeddings")
    await db.execute("ANALYZE journal.entries")
    return time.perf_counter() - started


async def search(db: Database, vector: list[float], user: str | None, ef: int) -> tuple[set[str], float]:
    started = time.perf_counter()
    rows = await db.journal.search(vector, embedder.MODEL, user=user, limit=LIMIT, ef_search=ef)
    return {str(row["id"]) for row in rows}, time.perf_counter() - started


async def exact(db: Database, vector: list[float], user: str | None) -> set[str]:
    async with db.transaction() as conn:
        await conn.execute("SET LOCAL enable_indexscan = off")
        rows = await conn.execute(
            "SELECT entry_id FROM journal.embeddings WHERE %(user)s::text IS NULL OR user_id = %(user)s "
            "ORDER BY vector::vector(256) <=> %(vector)s::vector(256) LIMIT %(limit)s",
            {"user": user, "vector": str(vector), "limit": LIMIT},
        )
        return {str(row["entry_id"]) for row in await rows.fetchall()}


async def measure(db: Database, queries: int, user: str | None) -> dict[str, Any]:
    vectors = [vector.tolist() for vector in embedder.embed(texts(queries, seed=2))]
    truth = [await exact(db, vector, user) for vector in vectors]
    found: dict[str, Any] = {}
    for ef in EF:
        answers = [await search(db, vector, user, ef) for vector in vectors]
        recall = fmean(len(ids & true) / len(true) for (ids, _), true in zip(answers, truth, strict=True))
        seconds = quantiles([took for _, took in answers], n=100)
        found[f"ef_search {ef}"] = {
            "recall": round(recall, 4),
            "p50_ms": round(seconds[49] * 1000, 2),
            "p99_ms": round(seconds[98] * 1000, 2),
        }
    return found


async def run(entries: int, queries: int, users: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        async with await Database.open(data_dir=Path(folder)) as db:
            built = await fill(db, entries, users)
            return {
                "entries": entries,
                "dimensions": 256,
                "limit": LIMIT,
                "build_seconds": round(built, 1),
                "all users": await measure(db, queries, None),
                f"one of {users} users": await measure(db, queries, "user1"),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--users", type=int, default=100)
    args = parser.parse_args()
    print(json.dumps(asyncio.run(run(args.entries, args.queries, args.users)), indent=2))


if __name__ == "__main__":
    main()
