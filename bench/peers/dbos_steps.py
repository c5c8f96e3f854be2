"""Steps per second of DBOS: one workflow, then many at once; cost of a sleeping one.

Arguments: url, workflows, steps, sleeping workflows.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import time

import psycopg
from dbos import DBOS

url, tasks, count, sleeping = sys.argv[1], *map(int, sys.argv[2:5])
DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})


@DBOS.step()
async def one(n: int) -> int:
    return n


@DBOS.workflow()
async def work(steps: int) -> int:
    total = 0
    for n in range(steps):
        total += await one(n)
    return total


@DBOS.workflow()
async def nap() -> None:
    await DBOS.sleep_async(86400)


async def rate(workflows: int, steps: int) -> float:
    began = time.perf_counter()
    handles = [await DBOS.start_workflow_async(work, steps) for _ in range(workflows)]
    for handle in handles:
        await handle.get_result()
    return workflows * steps / (time.perf_counter() - began)


async def naps() -> dict[str, float]:
    """Bytes per sleeping workflow in the database and in this process, which holds all of them."""
    before, memory = size(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(sleeping):
        await DBOS.start_workflow_async(nap)
    query = "SELECT count(*) FROM dbos.operation_outputs WHERE function_name = 'DBOS.sleep'"
    with psycopg.connect(url, autocommit=True) as conn:
        while conn.execute(query).fetchone()[0] < sleeping:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1024
    return {"bytes_per_sleeper": (size() - before) / sleeping, "memory_per_sleeper": grown / sleeping}


def size() -> int:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("VACUUM FULL")
        return conn.execute("SELECT pg_database_size(current_database())").fetchone()[0]


async def main() -> None:
    DBOS.launch()
    await rate(1, 10)
    result = {"one_task": await rate(1, count), "many_tasks": await rate(tasks, max(count // tasks, 20))}
    print(json.dumps({**result, **await naps()}), flush=True)
    os._exit(0)  # the sleeping workflows would hold it for a day


logging.disable(logging.WARNING)
asyncio.run(main())
