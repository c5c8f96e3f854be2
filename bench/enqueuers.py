"""Many clients that enqueue one task at a time, durably: `tasks` against the same table without triggers.

Run `python bench/enqueuers.py [--clients 8,32,64] [--seconds 3] [--rounds 3]` in the project's environment;
it prints one JSON object. Each ratio compares the two tables within one round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from measures import until
from peers.bare import TABLE

from servers import running
from shiftboss.db.migrate import migrate

TASKS = """INSERT INTO tasks (task_type, params) VALUES ('noop', '{"sent": 0}')"""
BARE = TASKS.replace("tasks", "bare")
BACKLOG = TASKS.replace("VALUES (", "SELECT ").replace("')", "' FROM generate_series(1, %s)")
HERE = Path(__file__).parent


async def client(url: str, statement: str, ends: float) -> int:
    done = 0
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        while time.monotonic() < ends:
            await conn.execute(statement, prepare=True)
            done += 1
    return done


async def clients(url: str, statement: str, count: int, seconds: float) -> float:
    """The number of enqueues per second."""
    ends = time.monotonic() + seconds
    return sum(await asyncio.gather(*(client(url, statement, ends) for _ in range(count)))) / seconds


@contextmanager
def workers(url: str, count: int, queue: str) -> Iterator[None]:
    """Run worker processes that serve this queue."""
    command = [sys.executable, "-m", "shiftboss", "worker", "shiftboss_tasks:handlers", "--queue", queue]
    place = {"SHIFTBOSS_DATABASE_URL": url, "PYTHONPATH": str(HERE / "peers")}
    started = [
        subprocess.Popen(command, env=os.environ | place, cwd=HERE / "peers", stderr=subprocess.DEVNULL)
        for _ in range(count)
    ]
    try:
        with psycopg.connect(url, autocommit=True) as conn:
            joined = "SELECT count(*) FROM workers WHERE status = 'active'"
            until(lambda: conn.execute(joined).fetchone() == (count,), "the workers do not join", 0.05)
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)


def measure(url: str, counts: list[int], rounds: int, seconds: float) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for count in counts:
        ratios, rates = [], []
        for _ in range(rounds):
            bare = asyncio.run(clients(url, BARE, count, seconds))
            rate = asyncio.run(clients(url, TASKS, count, seconds))
            ratios.append(rate / bare)
            rates.append((round(rate), round(bare)))
        spread = [round(min(ratios), 2), round(max(ratios), 2)]
        result[str(count)] = {"ratio": round(statistics.median(ratios), 2), "spread": spread, "rates": rates}
    return result


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clients", default="8,32,64")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=3.0)
    given = options.parse_args()
    counts = [int(count) for count in given.clients.split(",")]
    with running() as servers:
        url = servers.fresh("enqueuers")
        asyncio.run(migrate(url))
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(TABLE)
        result: dict[str, Any] = {"postgres": servers.postgres_version, "load": os.getloadavg()}
        result["nobody asleep"] = measure(url, counts, given.rounds, given.seconds)
        with workers(url, 1, "elsewhere"):
            result["one asleep, of another queue"] = measure(url, counts, given.rounds, given.seconds)
        with workers(url, 1, "default"):
            result["one draining"] = measure(url, counts, given.rounds, given.seconds)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
