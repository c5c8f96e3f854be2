"""Entries per second through the whole journal pipeline with the local provider and real worker processes.

    python bench/journal_pipeline.py [--entries 500] [--workers 2]

Entries are put together from the sentences of the sample journals, for ten writers. Time runs from the start
of the import to the end of the last task, workers already up. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from journal_search import texts
from rich.console import Console

from shiftboss.db import Database
from shiftboss.extensions.journal.commands import import_entries
from shiftboss.extensions.journal.follow import follow
from shiftboss.extensions.journal.parsing import Parsed, parse

WRITERS = 10


def entries(count: int) -> list[Parsed]:
    first = datetime(2024, 1, 1, 20, tzinfo=UTC)
    return [
        parse(
            {
                "user": f"user{n % WRITERS}",
                "id": str(n),
                "date": str(first + timedelta(hours=n)),
                "text": text,
            }
        )
        for n, text in enumerate(texts(count, seed=3))
    ]


@asynccontextmanager
async def worker(url: str, folder: Path, number: int):  # type: ignore[no-untyped-def]
    command = [sys.executable, "-m", "shiftboss", "worker", "shiftboss.extensions.journal.handlers:handlers"]
    environment = os.environ | {"SHIFTBOSS_DATABASE_URL": url, "SHIFTBOSS_DATA_DIR": str(folder)}
    arguments = ["--id", f"bench{number}", "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(*command, *arguments, env=environment)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def run(count: int, workers: int) -> dict[str, Any]:
    quiet = Console(file=open(os.devnull, "w"))  # noqa: SIM115, ASYNC230 -- lives as long as the program
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with await Database.open(data_dir=folder) as db, AsyncExitStack() as stack:
            for number in range(workers):
                await stack.enter_async_context(worker(db.url, folder, number))
            warm = await import_entries(
                db, [parse({"user": "warm", "date": "2025-01-01", "text": "Warm up."})]
            )
            await follow(db, warm.tasks, quiet)
            started = time.perf_counter()
            imported = await import_entries(db, entries(count))
            stored = time.perf_counter() - started
            failed = await follow(db, imported.tasks, quiet)
            seconds = time.perf_counter() - started
            return {
                "entries": count,
                "workers": workers,
                "tasks": len(imported.tasks),
                "failed": len(failed),
                "import_seconds": round(stored, 2),
                "seconds": round(seconds, 2),
                "entries_per_second": round(count / seconds, 1),
                "tasks_per_second": round(len(imported.tasks) / seconds, 1),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    print(json.dumps(asyncio.run(run(args.entries, args.workers)), indent=2))


if __name__ == "__main__":
    main()
