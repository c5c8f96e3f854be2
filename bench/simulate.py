"""Simulate ten thousand workers and a hundred million tasks per day on the real SQL of one PostgreSQL.

    python bench/simulate.py [--minutes 5] [--workers 10000] [--per-day 100000000] [--share 1.0] [--json FILE]

One process with a few connections makes the calls of all workers and coordinators, at the rate of the whole
fleet (`--share 0.5`: at half of it). Tasks are enqueued in tens, and assigned and finished in batches every
tenth of a second. Every worker beats every five seconds; all beats of a tenth of a second are one call, as
coordinators make it. A real leader rescues and prunes. Finished tasks stay for a minute, so that deleting
them is part of the load. Halfway, one worker in a hundred falls silent. Before the simulation each call is
measured by itself for a few seconds: these are the ceilings. PostgreSQL is durable. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import servers
from shiftboss.db import Database
from shiftboss.db.migrate import migrate
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.leader.duties import candidate
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.worker.source import Marks

DAY, TICK, BEAT, LEASE = 86_400, 0.1, 5.0, 30.0
RUNS = 5.0  # seconds that a task takes, on average
ENQUEUED_TOGETHER = 10
PROBE = 4.0  # seconds for each ceiling
JOIN = """
SELECT shiftboss.register('sim-' || n, 'grpc', p_lease_time => make_interval(secs => %s))
FROM generate_series(0, %s) n
"""
TABLE = """
SELECT pg_table_size('public.tasks') AS heap, pg_indexes_size('public.tasks') AS indexes,
    pg_current_wal_lsn() - '0/0' AS wal, (SELECT count(*) FROM tasks) AS rows,
    (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'public.tasks'::regclass) AS dead,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections
"""


class Clock:
    """Records the duration of calls by name."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self.done: dict[str, int] = defaultdict(int)

    async def time(self, name: str, count: int, call: Awaitable[Any]) -> Any:
        began = time.perf_counter()
        result = await call
        self._seconds[name].append(time.perf_counter() - began)
        self.done[name] += count
        return result

    def figures(self, seconds: float) -> dict[str, Any]:
        return {
            name: {
                "per_second": round(self.done[name] / seconds, 1),
                "calls_per_second": round(len(took) / seconds, 1),
                "ms_median": round(statistics.median(took) * 1000, 1),
                "ms_p99": round(sorted(took)[int(len(took) * 0.99)] * 1000, 1),
            }
            for name, took in self._seconds.items()
        }


class Simulation:
    """The simulated fleet: free workers, running tasks with their end, and silent workers."""

    def __init__(self, db: Database, workers: int, rate: float) -> None:
        self._db, self._rate = db, rate
        self._fleet: FleetStore = db.family(FleetStore)
        self._ids = [f"sim-{n}" for n in range(workers)]
        self._free = list(self._ids)
        self._leases: dict[str, int] = {}
        self._running: list[tuple[float, str, Any, int]] = []
        self._marks = Marks()
        self.silent: set[str] = set()
        self.clock = Clock()
        self.lag = 0.0

    async def every(self, step: Callable[[int], Awaitable[None]], seconds: float = TICK) -> None:
        """Call `step` with its number at a steady pace; record how late it gets."""
        began, number = time.monotonic(), 0
        while True:
            await step(number)
            number += 1
            late = time.monotonic() - began - number * seconds
            self.lag = max(self.lag, late)
            await asyncio.sleep(max(-late, 0))

    async def enqueue(self, number: int) -> None:
        due = round(self._rate * TICK * (number + 1)) - round(self._rate * TICK * number)
        some = [NewTask(task_type="t", params={"n": number})] * due
        parts = [some[start : start + ENQUEUED_TOGETHER] for start in range(0, due, ENQUEUED_TOGETHER)]
        calls = (self.clock.time("enqueue", len(part), self._db.tasks.enqueue(part)) for part in parts)
        await asyncio.gather(*calls)

    async def assign(self, number: int) -> None:
        limit, marks = min(len(self._free), 500), self._marks.take()
        began = time.monotonic()
        lanes = await self.clock.time("look", 1, self._fleet.waiting(limit, marks)) if limit else []
        ids = [id for lane in lanes for id in lane["ids"]][:limit]
        if not ids:
            return
        chosen = [self._free.pop() for _ in ids]
        given = await self.clock.time("claim", len(ids), self._fleet.assign_each(ids, chosen))
        self._marks.learn([task for _, task in given], limit, marks is not None, time.monotonic() - began)
        self._free += set(chosen) - {worker for worker, _ in given}
        for worker, task in given:
            self._leases[worker] = task.lease
            ends = time.monotonic() + random.expovariate(1 / RUNS)
            heapq.heappush(self._running, (ends, worker, task.id, task.lease))

    async def finish(self, number: int) -> None:
        due = []
        while self._running and self._running[0][0] <= time.monotonic():
            one = heapq.heappop(self._running)
            if one[1] not in self.silent:
                due.append(one)
        if due:
            held = [(id, lease) for _, _, id, lease in due]
            await self.clock.time("finish", len(due), self._db.tasks.complete(held, [b"1"] * len(due)))
        for _, worker, _, _ in due:
            del self._leases[worker]
            self._free.insert(random.randrange(len(self._free) + 1), worker)

    async def beat(self, number: int) -> None:
        share = round(BEAT / TICK)
        some = [id for id in self._ids[number % share :: share] if id not in self.silent]
        beats = [{"id": id, "leases": [self._leases[id]] if id in self._leases else []} for id in some]
        await self.clock.time("beat", len(beats), self._fleet.beats(beats))

    def silence(self, count: int) -> list[str]:
        """Silence this many busy workers."""
        gone = random.sample(sorted(self._leases), min(count, len(self._leases)))
        self.silent |= set(gone)
        return gone


async def detection(db: Database, gone: list[str]) -> dict[str, float]:
    """Seconds until the workers are detected as lost and their tasks are back in the queue."""
    began, found = time.monotonic(), list[float]()
    query = "SELECT count(*) AS n FROM tasks WHERE status = 'In Progress' AND worker_id = ANY (%s)"
    while len(found) < len(gone) and time.monotonic() < began + 4 * LEASE:
        left = (await db.fetch(query, [gone]))[0]["n"]
        found += [time.monotonic() - began] * (len(gone) - left - len(found))
        await asyncio.sleep(0.25)
    if len(found) < len(gone):
        return {"workers": len(gone), "found": len(found)}
    figures = {
        "seconds_first": found[0],
        "seconds_median": statistics.median(found),
        "seconds_last": found[-1],
    }
    return {"workers": len(gone)} | {name: round(value, 1) for name, value in figures.items()}


async def ceiling(call: Callable[[int], Awaitable[int]], clients: int) -> float:
    """The rate of `call` with this many concurrent clients."""
    done, end = 0, time.monotonic() + PROBE

    async def client(number: int) -> None:
        nonlocal done
        while time.monotonic() < end:
            done += await call(number)

    began = time.monotonic()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return round(done / (time.monotonic() - began), 1)


async def ceilings(db: Database) -> dict[str, float]:
    """The maximum rate of each call alone: 8 clients with single calls, or 2 with batches."""
    fleet: FleetStore = db.family(FleetStore)

    async def beat(number: int) -> int:
        await db.workers.beat(f"sim-{random.randrange(1000)}", [])
        return 1

    async def beats(number: int) -> int:
        await fleet.beats([{"id": f"sim-{n}", "leases": []} for n in random.sample(range(1000), 200)])
        return 200

    async def enqueue(number: int) -> int:
        await db.tasks.enqueue([NewTask(task_type="t")])
        return 1

    def work(limit: int) -> Callable[[int], Awaitable[int]]:
        async def claim_and_finish(number: int) -> int:
            tasks = await db.tasks.claim(f"sim-{number}", limit)
            await db.tasks.complete([(task.id, task.lease) for task in tasks], [b"1"] * len(tasks))
            return len(tasks)

        return claim_and_finish

    found = {"beats_one_by_one": await ceiling(beat, 8), "beats_by_200": await ceiling(beats, 2)}
    found["enqueues_one_by_one"] = await ceiling(enqueue, 8)
    for _ in range(12):
        await db.tasks.enqueue([NewTask(task_type="t")] * 5_000)
    found["tasks_claimed_and_finished_one_by_one"] = await ceiling(work(1), 8)
    found["tasks_claimed_and_finished_by_200"] = await ceiling(work(200), 2)
    await db.execute("TRUNCATE tasks CASCADE")
    await db.execute("SELECT shiftboss.retally()")
    return found


@asynccontextmanager
async def running(simulation: Simulation) -> AsyncIterator[None]:
    steps = (simulation.enqueue, simulation.assign, simulation.finish, simulation.beat)
    tasks = [asyncio.create_task(simulation.every(step)) for step in steps]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def simulate(used: servers.Servers, given: argparse.Namespace) -> dict[str, Any]:
    url = used.fresh("simulate")
    await migrate(url)
    rate = given.per_day / DAY * given.share
    settings = Settings.load()
    settings = settings.model_copy(
        update={"leader": settings.leader.model_copy(update={"keep_tasks_days": 60 / DAY})}
    )
    async with await Database.open(url, max_size=10) as db:
        await db.execute(JOIN, [LEASE, given.workers - 1])
        limits = await ceilings(db)
        simulation = Simulation(db, given.workers, rate)
        async with candidate(db, settings), running(simulation):
            await asyncio.sleep(given.minutes * 30)
            before, cpu, began = await db.fetch_one(TABLE) or {}, used.postgres_cpu(), time.monotonic()
            own, simulation.clock, simulation.lag = time.process_time(), Clock(), 0.0
            lost = asyncio.create_task(detection(db, simulation.silence(given.workers // 100)))
            await asyncio.sleep(given.minutes * 30)
            seconds = time.monotonic() - began
            after, burnt = await db.fetch_one(TABLE) or {}, used.postgres_cpu() - cpu
            own = time.process_time() - own
            calls, detected = simulation.clock.figures(seconds), await lost
    finished = simulation.clock.done["finish"]
    return {
        "machine": {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 1)},
        "postgres": used.postgres_version,
        "ceilings_per_second": limits,
        "workers": given.workers,
        "tasks_per_second_asked": round(rate, 1),
        "calls": calls,
        "behind_seconds": round(simulation.lag, 1),
        "cores_of_postgres": round(burnt / seconds, 2),
        "cores_of_client": round(own / seconds, 2),
        "cpu_us_per_task": round(burnt / finished * 1e6, 1),
        "wal_bytes_per_task": round(float(after["wal"] - before["wal"]) / finished),
        "table": {name: int(after[name]) for name in ("heap", "indexes", "rows", "dead")},
        "connections": after["connections"],
        "detection": detected,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=10_000)
    parser.add_argument("--per-day", type=float, default=1e8)
    parser.add_argument(
        "--share", type=float, default=1.0, help="of that rate, on a machine that is too small"
    )
    parser.add_argument("--json", type=Path, help="write the result here as well")
    given = parser.parse_args()
    with servers.running() as used:
        text = json.dumps(asyncio.run(simulate(used, given)), indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
