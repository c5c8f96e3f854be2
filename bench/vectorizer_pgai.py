"""Compare our vectorizer worker with that of pgai: rows per second, requests, memory.

    python -m venv pgai && pgai/bin/pip install "pgai[vectorizer-worker]"
    PYTHONPATH=src:. python bench/vectorizer_pgai.py --pgai pgai/bin/pgai [--rows 5000] [--latency 0.05]

Both embed the same rows without cutting them, with the same batch size and number of calls at a time. The
rate is that from the first request until the worker has ended; what came before is `start_seconds`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from tests.extensions.vectorizer.provider import Provider, serving

from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate

MODEL, DIMENSIONS, BATCH, CALLS = "bench", 256, 50, 4  # a model of OpenAI would make pgai fetch its tokenizer
ROWS = (
    "INSERT INTO public.doc SELECT n, 'row ' || n || repeat(' some words', 20) FROM generate_series(1, %s) n"
)
PGAI = """
SELECT ai.create_vectorizer('public.doc', loading => ai.loading_column('body'),
    embedding => ai.embedding_openai(%(model)s, %(dimensions)s, base_url => %(url)s),
    chunking => ai.chunking_none(), indexing => ai.indexing_none(), scheduling => ai.scheduling_none(),
    processing => ai.processing_default(batch_size => %(batch)s, concurrency => %(calls)s))
"""
OURS = """
SELECT ai.create_vectorizer('public.doc', columns => ARRAY['body'], provider => 'openai', model => %(model)s,
    dimensions => %(dimensions)s, chunking => 'none', index_method => 'none', batch_size => %(batch)s,
    concurrency => %(calls)s)
"""
COUNT = "SELECT count(*) FROM public.doc_embedding_store"


async def measure(url: str, create: str, command: list[str], rows: int, latency: float) -> dict[str, Any]:
    """Fill the table, run the worker until its queue is empty, and count."""
    async with serving(Provider(latency)) as provider:
        given = {"model": MODEL, "dimensions": DIMENSIONS, "url": f"{provider.url}/v1"}
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("CREATE TABLE public.doc (id int PRIMARY KEY, body text)")
            conn.execute(ROWS, [rows])
            conn.execute(create, given | {"batch": BATCH, "calls": CALLS})
        environment = {
            "SHIFTBOSS_DATABASE_URL": url,
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": given["url"],
        }
        started = time.perf_counter()
        peak, cpu = await _run(command, os.environ | environment)
        seconds = time.perf_counter() - (provider.first or started)
        with psycopg.connect(url) as conn:
            [done] = conn.execute(COUNT).fetchone() or [0]
    assert done == rows, f"{done} of {rows} rows were embedded"
    return {
        "rows_per_second": round(rows / seconds, 1),
        "seconds": round(seconds, 1),
        "start_seconds": round((provider.first or started) - started, 1),
        "requests": len(provider.requests),
        "peak_mb": round(peak / 1024**2),
        "cpu_seconds": round(cpu, 1),
    }


async def _run(command: list[str], environment: dict[str, str]) -> tuple[int, float]:
    """The worker's peak memory in bytes and its processor time, its start included."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    ended, peak, cpu = asyncio.create_task(process.wait()), 0, 0.0
    while not ended.done():
        with suppress(psutil.NoSuchProcess):
            worker = psutil.Process(process.pid)
            peak, cpu = max(peak, worker.memory_info().rss), sum(worker.cpu_times()[:2])
        await asyncio.wait({ended}, timeout=0.1)
    assert process.returncode == 0, f"{command[0]} ended with {process.returncode}"
    return peak, cpu


def database(url: str, name: str) -> str:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    head, _, tail = url.partition("?")
    made = f"{head.rpartition('/')[0]}/{name}" + (f"?{tail}" if tail else "")
    with psycopg.connect(made, autocommit=True) as conn:
        conn.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return made


async def main(pgai: str, rows: int, latency: float) -> None:
    with tempfile.TemporaryDirectory(prefix="shiftboss-bench-") as home:
        server = EmbeddedServer(Path(home) / "server", linger=0)
        url = await asyncio.to_thread(server.acquire)
        try:
            ours, theirs = database(url, "ours"), database(url, "theirs")
            await migrate(ours)
            await _run([pgai, "install", "-d", theirs], dict(os.environ))
            work = [
                sys.executable,
                "-m",
                "shiftboss",
                "vectorizer",
                "worker",
                "--once",
                "--log-level",
                "error",
            ]
            figures = {
                "pgai": await measure(
                    theirs, PGAI, [pgai, "vectorizer", "worker", "-d", theirs, "--once"], rows, latency
                ),
                "shiftboss": await measure(ours, OURS, work, rows, latency),
            }
        finally:
            server.release()
            await asyncio.to_thread(server.stop)
    print(
        json.dumps(
            {"rows": rows, "latency": latency, **figures, "load": round(os.getloadavg()[0], 1)}, indent=1
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pgai", required=True, help="path of pgai's command")
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds a request takes")
    options = parser.parse_args()
    asyncio.run(main(options.pgai, options.rows, options.latency))
