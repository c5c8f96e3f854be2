"""Run a full load with pruning for ten minutes, and compare the last minutes with the first.

Part of `bench/run`. `python bench/soak.py [--seconds 600] [--held]` does it alone and prints a row per
interval: tasks a second, pick-up, megabytes of table and indexes, dead rows, memory of the worker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import threading
import time

import psycopg
from measures import Bench, Figures, open_transaction, percentile, ready
from systems import SHIFTBOSS, Fleet, System, fleet

import servers
from shiftboss.db import Database
from shiftboss.leader.pruner import Pruner
from shiftboss.model.settings import LeaderSettings

INTERVALS = 10
BACKLOG = 5_000
FILL = (
    """INSERT INTO tasks (task_type, params) SELECT 'noop', '{"sent": 0}' FROM generate_series(1, %s::int)"""
)
SIZE = """SELECT pg_table_size('public.tasks') AS heap, pg_indexes_size('public.tasks') AS indexes,
    (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'public.tasks'::regclass) AS dead"""
KEPT_SECONDS = 15.0


class Stop(threading.Event):
    """Tells the other threads to end."""


def feed(url: str, stop: Stop, crew: Fleet) -> None:
    """Keep a backlog so that the worker is never idle. Probes are not part of it."""
    sent = ran(crew)
    with psycopg.connect(url, autocommit=True) as conn:
        while not stop.wait(0.02):
            missing = BACKLOG - (sent - ran(crew))
            if missing > BACKLOG // 4:
                conn.execute(FILL, [missing])
                sent += missing


def ran(crew: Fleet) -> int:
    return crew.counter.total() - len(crew.counter.probes())


def prune(url: str, stop: Stop) -> None:
    """Run the leader's pruner with a history of seconds instead of days."""

    async def run() -> None:
        settings = LeaderSettings(keep_tasks_days=KEPT_SECONDS / 86_400)
        async with await Database.open(url) as db:
            while not stop.is_set():
                await Pruner(db, settings).prune()
                await asyncio.sleep(1)

    asyncio.run(run())


def watch(url: str, crew: Fleet, seconds: float) -> list[dict[str, float]]:
    """One row per interval."""
    rows = []
    with psycopg.connect(url, autocommit=True) as conn:
        for _ in range(INTERVALS):
            before, began, probes = crew.counter.total(), time.perf_counter(), len(crew.counter.probes())
            SHIFTBOSS.call("latency", url, n=max(20, int(seconds / INTERVALS * 10)), rate=10.0)
            time.sleep(max(0.0, seconds / INTERVALS - (time.perf_counter() - began)))
            rate = (crew.counter.total() - before) / (time.perf_counter() - began)
            heap, indexes, dead = conn.execute(SIZE).fetchone() or (0, 0, 0)
            found = crew.counter.probes()[probes:] or [0.0]
            rows.append({
                "rate": round(rate), "pick_up_p50_ms": round(percentile(found, 0.5), 1),
                "heap_mb": round(heap / 2**20, 1), "indexes_mb": round(indexes / 2**20, 1),
                "dead": dead, "worker_mb": round(crew.megabytes(), 1),
            })  # fmt: skip
    return rows


def run(url: str, system: System, seconds: float, held: bool) -> list[dict[str, float]]:
    """The rows of a soak. With `held`, a reader keeps a transaction open until the last two rows."""
    stop = Stop()
    with fleet(system, url) as crew:
        ready(system, crew, url)
        beside = [
            threading.Thread(target=feed, args=(url, stop, crew)),
            threading.Thread(target=prune, args=(url, stop)),
        ]
        for thread in beside:
            thread.start()
        try:
            with open_transaction(url) if held else contextlib.nullcontext():
                rows = watch(url, crew, seconds)
            if held:
                time.sleep(min(60.0, seconds / 4))
                rows += watch(url, crew, seconds / 4)[-2:]
        finally:
            stop.set()
            for thread in beside:
                thread.join()
    return rows


def measure(bench: Bench, system: System, seconds: float, held: bool = False) -> Figures:
    """The ratio of the last intervals to the first ones. Omits the very first, while the table fills."""
    rows = run(bench.place(system), system, seconds, held)
    name = "soak_held" if held else "soak"
    steady, after = (rows[:INTERVALS], rows[INTERVALS:]) if held else (rows, [])

    def share(key: str) -> float:
        return sum(row[key] for row in steady[-3:]) / max(sum(row[key] for row in steady[1:4]), 0.1)

    figures = {f"{name}_rate": share("rate")}
    if held:
        recovered = sum(row["rate"] for row in after) / len(after)
        return figures | {f"{name}_recovered": recovered / max(steady[1]["rate"], 1)}
    keys = ("pick_up_p50_ms", "heap_mb", "indexes_mb", "worker_mb")
    return figures | {f"{name}_{key.rpartition('_')[0]}": share(key) for key in keys}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--held", action="store_true", help="beside a reader's open transaction")
    given = options.parse_args()
    with servers.running() as used:
        rows = run(Bench(used).place(SHIFTBOSS), SHIFTBOSS, given.seconds, given.held)
        print(
            json.dumps({"postgres": used.postgres_version, "load": os.getloadavg(), "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
