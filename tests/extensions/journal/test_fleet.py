"""The whole way with real worker processes: import, dependencies, search; and a database that restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.extensions.journal import commands, graph
from shiftboss.extensions.journal.demo import demo
from shiftboss.extensions.journal.reading import read
from shiftboss.model.task import NewTask, Status

from .conftest import CountingAI, sample, write

Eventually = Callable[..., Awaitable[Any]]


@contextlib.asynccontextmanager
async def worker(url: str, data_dir: Path, name: str = "w1") -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker process with the journal's handlers; stopped at the end."""
    command = [
        sys.executable,
        "-m",
        "shiftboss",
        "worker",
        "shiftboss.extensions.journal.handlers:handlers",
        "--id",
        name,
    ]
    environment = os.environ | {"SHIFTBOSS_DATABASE_URL": url, "SHIFTBOSS_DATA_DIR": str(data_dir)}
    log = (data_dir / f"{name}.log").open("wb")
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=log)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 30)
        log.close()


async def unfinished(db: Database) -> int:
    row = await db.fetch_one("SELECT count(*) AS n FROM tasks WHERE status IN ('Queued', 'In Progress')")
    return int(row["n"]) if row else 0


async def done(db: Database) -> bool:
    with contextlib.suppress(Exception):
        return await unfinished(db) == 0
    return False


async def test_the_demo_end_to_end(
    db: Database, database_url: str, ai: CountingAI, tmp_path: Path, capsys: Any
) -> None:
    async with worker(database_url, tmp_path), asyncio.timeout(110):
        await demo(db, ai, Console())
    told = capsys.readouterr().out
    assert "95 journal entries: 95 new, 0 known" in told
    assert "hard time" in told
    assert "Your summer is brighter" in told
    counts = {
        row["status"]: row["n"] for row in await db.fetch("SELECT status, count(*) n FROM tasks GROUP BY 1")
    }
    assert counts == {Status.COMPLETE: 95 * 3 + 3 * 3}
    assert all(row["processed"] == row["entries"] for row in await commands.status(db))


async def test_a_stage_waits_for_the_one_before(db: Database) -> None:
    rows = await write(db, *sample("mara")[:2])
    tasks = await graph.enqueue(db, rows)
    assert len(tasks) == 2 * 3 + 3
    again = await graph.enqueue(db, rows)
    assert again == tasks
    held = await db.fetch("SELECT task_type FROM tasks WHERE hold IS DISTINCT FROM 'dependency'")
    assert {row["task_type"] for row in held} == {"journal.data_structuring"}


async def test_one_step_is_a_task_of_its_own(
    db: Database, database_url: str, tmp_path: Path, eventually: Eventually
) -> None:
    rows = await write(db, sample("priya")[24])
    task = NewTask(task_type="sentiment_analysis", params={"entry_id": str(rows[0]["id"])}, queue="journal")
    (made,) = await db.tasks.enqueue([task])
    async with worker(database_url, tmp_path):
        await eventually(lambda: done(db), timeout=60)
    row = await db.tasks.get(made.id)
    assert row is not None
    result = row["result_data"]
    assert result["task_type"] == "sentiment_analysis"
    assert result["processed_data"]["overall_sentiment"]["label"] == "negative"
    found = await db.journal.load_entries([rows[0]["id"]])
    assert "emotion_detection" not in found[0]["results"]


async def test_nothing_is_lost_when_the_database_restarts_in_mid_pipeline(
    tmp_path: Path, eventually: Eventually
) -> None:
    server = EmbeddedServer(tmp_path / "server")
    url = await asyncio.to_thread(server.acquire)
    try:
        await migrate(url)
        (tmp_path / "sample.jsonl").write_text("\n".join(map(json.dumps, sample("mara"))))
        async with await Database.open(url) as db:
            imported = await commands.import_entries(db, read([tmp_path / "sample.jsonl"]))
            async with worker(url, tmp_path):
                await eventually(lambda: some_done(db), timeout=60)
                await asyncio.to_thread(restart, server)
                await eventually(lambda: done(db), timeout=90)
            rows = await db.tasks.watch(imported.tasks)
            assert {row.status for row in rows} == {Status.COMPLETE}
            assert (await commands.status(db))[0]["results"] == 34 * 16
            twice = await db.fetch(
                "SELECT entry_id FROM journal.results GROUP BY entry_id, task_type HAVING count(*) > 1"
            )
            assert twice == []
    finally:
        server.release()
        server.stop()


def restart(server: EmbeddedServer) -> None:
    server.stop()
    server.acquire()


async def some_done(db: Database) -> bool:
    row = await db.fetch_one("SELECT count(*) AS n FROM journal.results")
    return bool(row and row["n"] > 60)
