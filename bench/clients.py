"""Many clients that enqueue one task at a time, durably. Part of `bench/run`."""

from __future__ import annotations

import asyncio

import psycopg
from enqueuers import BACKLOG, BARE, TASKS, workers
from enqueuers import clients as run
from measures import Bench, Figures
from peers.bare import TABLE
from systems import System

SECONDS = 2.0
BUSY = 30_000


def ratios(bench: Bench, system: System, scale: float) -> Figures:
    """Rate of `tasks` relative to the same table without triggers, by number of clients."""
    seconds = max(0.5, SECONDS * scale)
    url = bench.place(system)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(TABLE)
    figures = {f"clients_{count}": ratio(url, count, seconds) for count in (1, 8, 32, 64)}
    for name, count, queue in (
        ("asleep", 1, "elsewhere"),
        ("draining", 1, "default"),
        ("draining_3", 3, "default"),
    ):
        with workers(url, count, queue):
            figures[f"clients_32_{name}"] = ratio(url, 32, seconds, BUSY if queue == "default" else 0)
    return figures


def ratio(url: str, count: int, seconds: float, busy: int = 0) -> float:
    """Measure bare, tasks, tasks, bare, so that drift cancels out.

    Workers drain `busy` tasks per second beside both tables.
    """

    def rate(statement: str) -> float:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("DELETE FROM tasks WHERE status = 'Queued'")
            conn.execute(BACKLOG, [round(busy * seconds)])
        return asyncio.run(run(url, statement, count, seconds))

    rates = [(statement, rate(statement)) for statement in (BARE, TASKS, TASKS, BARE)]
    bare, tasks = (sum(rate for statement, rate in rates if statement == one) for one in (BARE, TASKS))
    return tasks / bare


def own_enqueue(bench: Bench, system: System) -> Figures:
    """The rate of 32 clients that use the system's own call; ours is App.enqueue."""
    return {"own_32": system.call("enqueue-clients", bench.place(system), n=32, rate=3.0)["rate"]}
