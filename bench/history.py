"""Measure the cost of finished tasks: the documented views with a long history, and pruning during a drain.

Run `python bench/history.py [--rows 10000000] [--workers 1000]` in the project's environment; it prints one
JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import threading
import time
from typing import Any

import psycopg

from servers import running
from shiftboss.db import Database
from shiftboss.db.migrate import migrate
from shiftboss.leader.pruner import Pruner
from shiftboss.model.settings import LeaderSettings

VIEWS = (
    "orchestrator_status",
    "active_workers_health",
    "recent_task_activity LIMIT 100",
    "worker_performance",
    "task_queue_analysis",
)
HISTORY = """
INSERT INTO tasks (task_type, params, status, worker_id, last_worker_id, lease, created_at, updated_at,
    generation_started_at, generation_processed_at)
SELECT 't' || n %% 20, '{"n": 1}', CASE WHEN n %% 50 = 0 THEN 'Failed' ELSE 'Complete' END,
    'w' || n %% %(workers)s::int, 'w' || n %% %(workers)s::int, n, at, at + interval '2 s',
    at + interval '1 s', at + interval '2 s'
FROM generate_series(%(first)s::int, %(last)s::int) n,
    LATERAL (SELECT now() - %(age)s::interval + n * (interval '6 days' / %(rows)s::int) AS at) x
"""
ATTEMPTS = """
INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error)
SELECT id, lease, 1, worker_id, generation_started_at, generation_processed_at, 'failed', 'boom' FROM tasks
WHERE status = 'Failed'
"""
Connection = psycopg.Connection[Any]


def fill(conn: Connection, rows: int, workers: int, age: str) -> None:
    """Insert a history without triggers, and count it afterwards."""
    conn.execute("SET session_replication_role = replica")
    for first in range(1, rows + 1, 500_000):
        last = min(first + 499_999, rows)
        conn.execute(HISTORY, {"first": first, "last": last, "rows": rows, "workers": workers, "age": age})
    conn.execute(ATTEMPTS)
    conn.execute("RESET session_replication_role")


def views(conn: Connection, rows: int, workers: int) -> dict[str, Any]:
    """Milliseconds of each view, median of nine, beside 20,000 waiting tasks and five running per worker."""
    conn.execute(
        "INSERT INTO workers (id, last_heartbeat) SELECT 'w' || n, now() FROM generate_series(0, %s::int) n",
        [workers - 1],
    )
    fill(conn, rows, workers, "6 days")
    began = time.perf_counter()
    conn.execute("SELECT shiftboss.retally()")
    counted = time.perf_counter() - began
    conn.execute("INSERT INTO tasks (task_type) SELECT 't' || n % 20 FROM generate_series(1, 20000) n")
    conn.execute("SELECT FROM generate_series(0, %s::int) n, shiftboss.claim('w' || n, 5)", [workers - 1])
    conn.execute("VACUUM ANALYZE")
    took = {view: [_milliseconds(conn, view) for _ in range(9)] for view in VIEWS}
    medians = {view: round(statistics.median(times), 1) for view, times in took.items()}
    return {"rows": rows, "workers": workers, "retally_s": round(counted, 1), "views_ms": medians}


def _milliseconds(conn: Connection, view: str) -> float:
    began = time.perf_counter()
    conn.execute(f"SELECT * FROM {view}").fetchall()
    return 1000 * (time.perf_counter() - began)


def drain(url: str, tasks: int) -> float:
    """Claim and complete in batches of 500; tasks a second."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as conn:
        conn.execute("INSERT INTO tasks (task_type) SELECT 't' FROM generate_series(1, %s::int)", [tasks])
        conn.execute("ANALYZE tasks")
        began = time.perf_counter()
        while rows := conn.execute("SELECT id, lease FROM shiftboss.claim('w', 500)").fetchall():
            ids, leases = [row[0] for row in rows], [row[1] for row in rows]
            conn.execute("SELECT shiftboss.complete(%s, %s, NULL)", [ids, leases])
        return tasks / (time.perf_counter() - began)


async def prune(url: str, seconds: float) -> tuple[int, float]:
    """The number of rows that the pruner deleted, and the seconds it took."""
    async with await Database.open(url) as db:
        pruner, began = Pruner(db, LeaderSettings(keep_tasks_days=7)), time.perf_counter()
        done = await asyncio.wait_for(pruner.prune(), seconds)
        return done, time.perf_counter() - began


def beside(url: str, tasks: int) -> dict[str, float]:
    """The rates of a drain and of the pruning of as many old tasks at the same time."""
    with psycopg.connect(url, autocommit=True) as conn:
        fill(conn, tasks, 10, "20 days")
        conn.execute("SELECT shiftboss.retally()")
    result: dict[str, float] = {}
    thread = threading.Thread(target=lambda: result.update(drain=drain(url, tasks)))
    thread.start()
    rows, seconds = asyncio.run(prune(url, 600))
    thread.join()
    return result | {"prune": rows / seconds}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--workers", type=int, default=1000)
    options.add_argument("--tasks", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    with running() as servers:
        url = servers.fresh("history")
        asyncio.run(migrate(url))
        alone, together = [], []
        for _ in range(given.rounds):
            alone.append(drain(url, given.tasks))
            together.append(beside(url, given.tasks))
        ratios = [both["drain"] / rate for both, rate in zip(together, alone, strict=True)]
        result: dict[str, Any] = {
            "postgres": servers.postgres_version,
            "load": os.getloadavg(),
            "drain_alone": [round(rate) for rate in alone],
            "drain_beside_pruning": [round(both["drain"]) for both in together],
            "pruned_per_second": [round(both["prune"]) for both in together],
            "drain_ratio": [round(ratio, 2) for ratio in ratios],
        }
        with psycopg.connect(servers.fresh("views"), autocommit=True) as conn:
            asyncio.run(migrate(conn.info.dsn + f" password={conn.info.password}"))
            result |= views(conn, given.rows, given.workers)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
