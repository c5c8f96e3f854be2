"""Measure steps per second of one process and the cost of sleeping tasks, beside DBOS and absurd-sdk.

    python bench/steps.py [--steps 1000] [--tasks 50] [--sleeping 1000000] [--peers dbos,absurd]

PostgreSQL is durable here: fsync and synchronous_commit are on. Peers are installed from PyPI into
environments of their own under bench/peers/.venvs. Prints one JSON object. Run it on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from shiftboss import Context
from shiftboss.db import Database
from shiftboss.db.connection import connect
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.runtime import Worker
from shiftboss.worker.source import DatabaseSource

PEERS = Path(__file__).parent / "peers"
NAPS = 1000  # tasks that are put to sleep for real, here and by the peers
SLEEPERS = """
WITH made AS (
    INSERT INTO tasks (task_type, hold) SELECT 'nap', 'sleep' FROM generate_series(1, %s) RETURNING id)
INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, attempt, lease, started_at, until)
SELECT id, 'sleep', 'nap', 1, 'waiting', 1, 1, now(), now() + interval '1 day' FROM made
"""
READY = "INSERT INTO tasks (task_type) SELECT 'nap' FROM generate_series(1, %s)"
handlers = Handlers()


@handlers.task("steps")
async def steps(ctx: Context, count: int) -> int:
    total = 0
    for n in range(count):
        total += await ctx.step("step", one, n)
    return total


async def one(n: int) -> int:
    return n


@handlers.task("nap")
async def nap(ctx: Context) -> None:
    await ctx.sleep("nap", timedelta(days=1))


async def naps(db: Database) -> dict[str, float]:
    """The cost of putting a task to sleep, and its size while it sleeps."""
    await db.execute("TRUNCATE tasks, shiftboss.steps")
    before = await size(db)
    await db.tasks.enqueue([NewTask(task_type="nap")] * NAPS)
    began = time.perf_counter()
    await work(db, "nap", 50, "SELECT count(*) AS n FROM tasks WHERE hold = 'sleep'", NAPS)
    took = time.perf_counter() - began
    return {"sleeps_per_second": NAPS / took, "bytes_per_sleeper": (await size(db) - before) / NAPS}


async def size(db: Database) -> int:
    await db.execute("VACUUM FULL")
    row = await db.fetch_one("SELECT pg_database_size(current_database()) AS n")
    return int(row["n"]) if row else 0


async def work(db: Database, task_type: str, concurrency: int, done: str, enough: int) -> None:
    """Run a worker in this process until a query returns the expected count."""
    member = Member(id="bench", capabilities=Capabilities(task_types=[task_type]))
    async with Worker(DatabaseSource(db), handlers, member, WorkerSettings(concurrency=concurrency), db=db):
        while (await db.fetch(done))[0]["n"] < enough:  # noqa: ASYNC110  # the database says when
            await asyncio.sleep(0.02)


async def rate(db: Database, tasks: int, count: int) -> float:
    """Steps per second, from the first to the last stored step."""
    await db.execute("TRUNCATE tasks, shiftboss.steps")
    new = NewTask(task_type="steps", params={"count": count})
    await db.tasks.enqueue([new] * tasks)
    await work(db, "steps", tasks, "SELECT count(*) AS n FROM tasks WHERE status = 'Complete'", tasks)
    row = await db.fetch_one(
        "SELECT count(*) / extract(epoch FROM max(ended_at) - min(ended_at)) AS rate FROM shiftboss.steps"
    )
    return float(row["rate"]) if row else 0.0


async def claims(db: Database, sleeping: int, batches: int = 40) -> dict[str, float]:
    """Claims of 50 tasks per second, without and with this many sleeping tasks."""
    found = {}
    await db.execute("TRUNCATE tasks, shiftboss.steps")
    await db.workers.register(Member(id="claimer"))
    for name, count in (("none", 0), ("sleeping", sleeping)):
        if count:
            await db.execute(SLEEPERS, [count])
        await db.execute(READY, [50 * batches])
        # What was just written costs no claim: no autovacuum and no checkpoint runs beside them.
        await db.execute("VACUUM (ANALYZE) tasks, shiftboss.steps")
        await db.execute("CHECKPOINT")
        took = []
        for _ in range(batches):
            began = time.perf_counter()
            claimed = await db.tasks.claim("claimer", 50)
            took.append(time.perf_counter() - began)
            assert len(claimed) == 50
        found[name] = 50 / statistics.median(took)
    return {**found, "ratio": found["sleeping"] / found["none"]}


def peer(name: str, url: str, tasks: int, count: int) -> dict[str, Any]:
    """The figures of a peer's driver, or an error text if it cannot be installed."""
    environment = PEERS / ".venvs" / name
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        pip = [environment / "bin" / "pip", "install", "-q", "-r", PEERS / f"{name}.txt"]
        if subprocess.run(pip, check=False).returncode:
            return {"error": f"{name} cannot be installed"}
    driver = [
        environment / "bin" / "python",
        PEERS / f"{name}_steps.py",
        url,
        str(tasks),
        str(count),
        str(NAPS),
    ]
    done = subprocess.run(driver, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr else "it failed"}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--sleeping", type=int, default=1_000_000)
    parser.add_argument("--peers", default="dbos,absurd")
    given = parser.parse_args()
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="shiftboss-bench-") as folder:
        server = EmbeddedServer(Path(folder) / "server", linger=0)
        url = await asyncio.to_thread(server.acquire)
        try:
            await migrate(url)
            async with await Database.open(url) as db:
                one_task = await rate(db, 1, given.steps)
                many = await rate(db, given.tasks, max(given.steps // given.tasks, 20))
                result["shiftboss"] = {"one_task": one_task, "many_tasks": many, **await naps(db)}
                result["claims"] = await claims(db, given.sleeping)
            for name in filter(None, given.peers.split(",")):
                async with connect(url) as conn:
                    await conn.execute(f"CREATE DATABASE peer_{name}")
                theirs = urlunsplit(urlsplit(url)._replace(path=f"/peer_{name}"))
                result[name] = await asyncio.to_thread(peer, name, theirs, given.tasks, given.steps)
        finally:
            server.stop()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
