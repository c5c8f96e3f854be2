"""Steps per second of absurd-sdk: one task, then many at once; bytes of a sleeping one.

Arguments: url, tasks, steps, sleeping tasks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import absurdctl
import psycopg
from absurd_sdk import AsyncAbsurd, AsyncTaskContext

url, tasks, count, sleeping = sys.argv[1], *map(int, sys.argv[2:5])
app = AsyncAbsurd(url, queue_name="bench")


@app.register_task("work")
async def work(params: dict, ctx: AsyncTaskContext) -> int:
    total = 0
    for n in range(params["steps"]):

        async def one(n: int = n) -> int:
            return n

        total += await ctx.step("step", one)
    return total


@app.register_task("nap")
async def nap(params: dict, ctx: AsyncTaskContext) -> None:
    await ctx.sleep_for("nap", 86400)


async def rate(many: int, steps: int) -> float:
    made = [await app.spawn("work", {"steps": steps}) for _ in range(many)]
    began = time.perf_counter()
    worker = asyncio.create_task(app.start_worker(concurrency=many, poll_interval=0.01))
    await until("SELECT count(*) FROM absurd.t_bench WHERE state = 'completed' AND task_id = ANY (%s)", made)
    took = time.perf_counter() - began
    app.stop_worker()
    await worker
    return many * steps / took


async def until(query: str, made: list) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        ids = [one["task_id"] for one in made]
        while (await (await conn.execute(query, [ids])).fetchone())[0] < len(made):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def bytes_of_a_sleeper() -> float:
    before = await size()
    made = [await app.spawn("nap", {}) for _ in range(sleeping)]
    worker = asyncio.create_task(app.start_worker(concurrency=50, poll_interval=0.01))
    await until("SELECT count(*) FROM absurd.t_bench WHERE state = 'sleeping' AND task_id = ANY (%s)", made)
    app.stop_worker()
    await worker
    return (await size() - before) / sleeping


async def size() -> int:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        await conn.execute("VACUUM FULL")
        found = await (await conn.execute("SELECT pg_database_size(current_database())")).fetchone()
    return found[0]


async def main() -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(absurdctl.BUNDLED_SCHEMA_SQL)
    await app.create_queue()
    await rate(1, 10)
    result = {"one_task": await rate(1, count), "many_tasks": await rate(tasks, max(count // tasks, 20))}
    result["bytes_per_sleeper"] = await bytes_of_a_sleeper()
    await app.close()
    print(json.dumps(result))


asyncio.run(main())
