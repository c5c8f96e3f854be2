"""Journal search at scale: its latency, and how many of the best results it finds.

    python bench/journal_search.py [--entries 100000] [--queries 200] [--users 100]

Entries are put together from sentences of the sample journals. The vector of an entry is the mean of the
vectors of its sentences by the local encoder, as it is for long entries, so that vectors lie as close
together as those of real entries; its terms are theirs. Searches are those of the product: by meaning, terms
and language. The results are compared with the best by the same score over all entries. Prints one JSON
object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any, NamedTuple

import numpy as np

from shiftboss.db import Database
from shiftboss.extensions.ai.protocol import Vectors
from shiftboss.extensions.ai.providers.local import multilingual
from shiftboss.extensions.ai.providers.local.terms import search_terms
from shiftboss.extensions.journal.demo import USERS
from shiftboss.extensions.journal.parsing import parse
from shiftboss.extensions.journal.store import Journal

EF = (40, 100, 200, 400)
LIMIT = 10
SAMPLE = Path(__file__).parent.parent / "src" / "shiftboss" / "extensions" / "journal" / "sample"
SIZE = multilingual.DIMENSIONS


class Text(NamedTuple):
    vector: Vectors
    terms: frozenset[str]


def sentences() -> list[Text]:
    lines = [line for user in USERS for line in (SAMPLE / f"{user}.jsonl").read_text().splitlines()]
    parts = [part["content"] for line in lines for part in parse(json.loads(line)).parts]
    pool = [sentence.strip() for part in parts for sentence in part.split(".") if len(sentence) > 20]
    return [
        Text(vector, frozenset(search_terms(text)))
        for text, vector in zip(pool, multilingual.embed(pool), strict=True)
    ]


def entries(pool: Sequence[Text], count: int) -> list[Text]:
    draw = random.Random(1)
    made = []
    for _ in range(count):
        chosen = draw.sample(pool, draw.randint(2, 6))
        mean = np.mean([one.vector for one in chosen], axis=0)
        made.append(Text(mean / np.linalg.norm(mean), frozenset().union(*(one.terms for one in chosen))))
    return made


async def fill(db: Database, texts: Sequence[Text], users: int) -> float:
    """Insert entries, vectors and terms by COPY. Returns the seconds for the vectors, including the index."""
    await db.execute(
        "INSERT INTO journal.users (id) SELECT 'user' || n FROM generate_series(0, %s) n", [users - 1]
    )
    await db.execute(
        "INSERT INTO journal.entries (user_id, external_id, content_hash, written_at, parts, source) "
        "SELECT 'user' || n %% %s, n::text, n::text, now() - n * interval '1 minute', "
        '\'[{"kind": "text", "content": "x"}]\', \'{}\' FROM generate_series(1, %s) n',
        [users, len(texts)],
    )
    ids = await db.fetch("SELECT id, user_id FROM journal.entries ORDER BY external_id::int")
    started = time.perf_counter()
    async with db.transaction() as conn, conn.cursor() as cursor:
        await cursor.execute("SET LOCAL maintenance_work_mem = '1GB'")
        columns = "entry_id, kind, user_id, model, dimensions, vector, terms"
        await cursor.execute(f"DROP INDEX IF EXISTS journal.embeddings_hnsw_{SIZE}")
        async with cursor.copy(f"COPY journal.embeddings ({columns}) FROM STDIN") as copy:
            for row, text in zip(ids, texts, strict=True):
                vector = str(text.vector.tolist())
                owner = (row["id"], "content", row["user_id"])
                await copy.write_row((*owner, multilingual.MODEL, SIZE, vector, sorted(text.terms)))
        await cursor.execute("SELECT journal.index_dimensions(%s)", [SIZE])
    await db.execute("ANALYZE journal.embeddings")
    await db.execute("ANALYZE journal.entries")
    return time.perf_counter() - started


async def search(db: Database, query: Text, user: str | None, ef: int) -> tuple[set[int], float]:
    """The numbers of the entries found, and the seconds it took."""
    started = time.perf_counter()
    rows = await db.family(Journal).search(
        query.vector.tolist(),
        multilingual.MODEL,
        user=user,
        limit=LIMIT,
        ef_search=ef,
        terms=sorted(query.terms),
    )
    return {int(row["external_id"]) for row in rows}, time.perf_counter() - started


def best(texts: Sequence[tuple[int, Text]], query: Text) -> set[int]:
    """The numbers of the best entries by the score of `journal.search` over all of them."""
    asked = [term for term in query.terms if not term.startswith("#")]
    holds = np.asarray([[term in text.terms for term in asked] for _, text in texts], dtype=np.float32)
    weights = np.log(1 + len(texts) / (0.5 + holds.sum(axis=0)))
    cosines = np.stack([text.vector for _, text in texts]) @ query.vector
    language = [
        not query.terms.isdisjoint(term for term in text.terms if term.startswith("#")) for _, text in texts
    ]
    words = (holds @ weights) / (weights.sum() * math.sqrt(len(asked)))
    scores = 10 * cosines + 3 * words + 2 * np.asarray(language)
    return {texts[place][0] for place in np.argsort(-scores)[:LIMIT]}


async def measure(
    db: Database, texts: Sequence[tuple[int, Text]], asked: Sequence[Text], user: str | None
) -> dict[str, Any]:
    truth = [best(texts, query) for query in asked]
    found: dict[str, Any] = {}
    for ef in EF if user is None else (EF[2],):
        answers = [await search(db, query, user, ef) for query in asked]
        recall = fmean(len(ids & true) / len(true) for (ids, _), true in zip(answers, truth, strict=True))
        seconds = quantiles([took for _, took in answers], n=100)
        found[f"ef_search {ef}"] = {
            "recall": round(recall, 4),
            "p50_ms": round(seconds[49] * 1000, 2),
            "p99_ms": round(seconds[98] * 1000, 2),
        }
    return found


async def run(count: int, queries: int, users: int) -> dict[str, Any]:
    pool = sentences()
    texts = list(enumerate(entries(pool, count), start=1))
    asked = random.Random(2).sample(pool, min(queries, len(pool)))
    mine = [(number, text) for number, text in texts if number % users == 1]
    with tempfile.TemporaryDirectory() as folder:
        async with await Database.open(data_dir=Path(folder)) as db:
            built = await fill(db, [text for _, text in texts], users)
            return {
                "entries": count,
                "dimensions": SIZE,
                "limit": LIMIT,
                "build_seconds": round(built, 1),
                "all users": await measure(db, texts, asked, None),
                f"one of {users} users": await measure(db, mine, asked, "user1"),
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
