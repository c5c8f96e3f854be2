"""Measure vectorizers: write rate compared with COPY, use of the provider, memory, cost of the trigger.

PYTHONPATH=src python bench/vectorizer.py [write copy busy memory trigger count] [--rows N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.extensions.ai import Embeddings
from shiftboss.extensions.vectorizer.run import VectorizerRun

DIMENSIONS = 256
TURNS = 5
TEXT = "'row ' || n || ' ' || repeat('some words of text ', 8)"
Figures = dict[str, Any]


class Provider:
    """Returns generated vectors after a fixed latency, and records how many of its places were in use."""

    def __init__(self, latency: float = 0.0) -> None:
        self.latency = latency
        self.pool = np.random.default_rng(1).normal(size=(4096, DIMENSIONS)).astype(np.float32)
        self.busy = 0
        self.taken = 0.0
        self.since = time.perf_counter()

    async def embed(
        self, texts: Sequence[str], model: str | None = None, provider: str | None = None, **_: Any
    ) -> Embeddings:
        self._tick(+1)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            return Embeddings(self.pool[: len(texts)], "bench", "bench")
        finally:
            self._tick(-1)

    def _tick(self, change: int) -> None:
        now = time.perf_counter()
        self.taken += self.busy * (now - self.since)
        self.since = now
        self.busy += change


async def source(db: Database, rows: int) -> None:
    await db.execute("DROP TABLE IF EXISTS public.doc CASCADE")
    await db.execute("CREATE TABLE public.doc (id int PRIMARY KEY, body text, hits int DEFAULT 0)")
    await db.execute(f"INSERT INTO public.doc SELECT n, {TEXT} FROM generate_series(1, %s) n", [rows])
    await db.execute("VACUUM ANALYZE public.doc")


async def vectorizer(db: Database, **options: Any) -> int:
    for row in await db.vectorizers.status():
        await db.vectorizers.drop(row["id"], drop_all=True)
    return await db.vectorizers.create(
        "public.doc", columns=["body"], dimensions=DIMENSIONS, index_method="none", **options
    )


async def run(db: Database, id: int, provider: Provider) -> float:
    started = time.perf_counter()
    await VectorizerRun(db, provider, await db.vectorizers.get(id))()
    assert await db.vectorizers.pending(id) == 0
    return time.perf_counter() - started


async def write(db: Database, rows: int) -> Figures:
    """Embeddings per second that reach the target table, with a provider without latency."""
    await source(db, rows)
    seconds = await run(db, await vectorizer(db, batch_size=512), Provider())
    return {"embeddings_per_second": round(rows / seconds), "seconds": round(seconds, 2)}


async def copy(db: Database, rows: int) -> Figures:
    """The upper limit: the same rows by binary COPY alone."""
    await source(db, rows)
    await vectorizer(db, enqueue_existing=False)
    texts = [row["body"].encode() for row in await db.fetch("SELECT body FROM public.doc ORDER BY id")]
    head = struct.pack(">HH", DIMENSIONS, 0)
    vectors = [head + line.astype(">f4").tobytes() for line in Provider().pool]
    started = time.perf_counter()
    async with db.transaction() as conn, conn.cursor() as cursor:
        into = "COPY public.doc_embedding_store (id, chunk_seq, chunk, embedding) FROM STDIN (FORMAT BINARY)"
        async with cursor.copy(into) as stream:
            await stream.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
            for first in range(0, rows, 512):
                block = bytearray()
                for n in range(first, min(first + 512, rows)):
                    text, vector = texts[n], vectors[n % len(vectors)]
                    block += struct.pack(">hiiiii", 4, 4, n + 1, 4, 0, len(text)) + text
                    block += struct.pack(">i", len(vector)) + vector
                await stream.write(bytes(block))
            await stream.write(struct.pack(">h", -1))
    seconds = time.perf_counter() - started
    return {"rows_per_second": round(rows / seconds), "seconds": round(seconds, 2)}


async def busy(db: Database, rows: int) -> Figures:
    """The share of the provider's places that were in use, with a latency of 100 ms."""
    await source(db, rows)
    concurrency, provider = 8, Provider(0.1)
    id = await vectorizer(db, batch_size=32, concurrency=concurrency)
    provider.since = time.perf_counter()
    seconds = await run(db, id, provider)
    provider._tick(0)
    return {
        "filled_percent": round(100 * provider.taken / (seconds * concurrency), 1),
        "seconds": round(seconds, 2),
    }


async def memory(db: Database, rows: int) -> Figures:
    """Peak memory of this process with few rows and with many."""
    peaks = {}
    for count in (10_000, rows):
        await source(db, count)
        id = await vectorizer(db, batch_size=512)
        peaks[count] = await _peak(run(db, id, Provider()))
    return {f"peak_mb_at_{count}": peak for count, peak in peaks.items()}


async def _peak(work: Awaitable[Any]) -> float:
    process, peak, task = psutil.Process(), 0, asyncio.ensure_future(work)
    while not task.done():
        peak = max(peak, process.memory_info().rss)
        await asyncio.wait({task}, timeout=0.05)
    await task
    return round(peak / 1024**2, 1)


async def trigger(db: Database, rows: int) -> Figures:
    """A bulk update with and without a vectorizer, in turns: of the embedded column, and of another one.

    The least of several turns, by the server's processor and by the clock: the machine may be busy.
    """
    updates = {"": "SET body = body || '.'", "_when_nothing_to_embed_changes": "SET hits = hits + 1"}
    figures: Figures = {}
    for suffix, change in updates.items():
        taken: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for turn in range(2 * TURNS):
            followed = turn % 2 == 1
            await source(db, rows)
            if followed:
                await vectorizer(db, enqueue_existing=False)
            taken[followed].append(await _timed(db, f"UPDATE public.doc {change}"))
        for n, kind in enumerate(("cpu", "clock")):
            plain, slow = (min(each[n] for each in taken[which]) for which in (False, True))
            figures |= {
                f"plain_{kind}_ms{suffix}": round(plain),
                f"times_{kind}{suffix}": round(slow / plain, 2),
            }
    return figures


async def _timed(db: Database, statement: str) -> tuple[float, float]:
    """Milliseconds of the session's processor time, and of the clock."""
    async with db.dedicated() as conn:
        row = await (await conn.execute("SELECT pg_backend_pid() AS pid")).fetchone()
        assert row
        process = psutil.Process(row["pid"])
        await conn.execute("CHECKPOINT")
        before, started = process.cpu_times(), time.perf_counter()
        await conn.execute(statement)
        clock, after = time.perf_counter() - started, process.cpu_times()
    return 1000 * (sum(after[:2]) - sum(before[:2])), 1000 * clock


async def count(db: Database, rows: int) -> Figures:
    """How long the exact pending count takes."""
    await source(db, rows)
    id = await vectorizer(db)
    started = time.perf_counter()
    pending = await db.vectorizers.pending(id)
    return {"pending": pending, "ms": round(1000 * (time.perf_counter() - started), 1)}


MEASURES: dict[str, tuple[Callable[[Database, int], Awaitable[Figures]], int]] = {
    "write": (write, 50_000),
    "copy": (copy, 50_000),
    "busy": (busy, 12_800),
    "memory": (memory, 1_000_000),
    "trigger": (trigger, 100_000),
    "count": (count, 1_000_000),
}


async def main(names: Sequence[str], rows: int | None) -> None:
    with tempfile.TemporaryDirectory(prefix="shiftboss-bench-") as home:
        server = EmbeddedServer(Path(home) / "server", linger=0)
        url = await asyncio.to_thread(server.acquire)
        try:
            await migrate(url)
            async with await Database.open(url) as db:
                for name in names:
                    measure, default = MEASURES[name]
                    figures = await measure(db, rows or default)
                    load = round(os.getloadavg()[0], 1)
                    print(
                        json.dumps({"measure": name, "rows": rows or default, **figures, "load": load}),
                        flush=True,
                    )
        finally:
            server.release()
            await asyncio.to_thread(server.stop)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("measures", nargs="*", default=list(MEASURES), metavar="MEASURE")
    parser.add_argument("--rows", type=int)
    options = parser.parse_args()
    asyncio.run(main(options.measures or list(MEASURES), options.rows))
