"""Shiftboss: the worker is `python -m shiftboss worker`; finished tasks are kept with their record."""

import asyncio
import os
import sys
from pathlib import Path

import uvloop
from common import BLOB, TICK, clients_async, main, pace_async, timed_async

from shiftboss import App
from shiftboss.db import Database
from shiftboss.db.migrate import migrate
from shiftboss.model.task import NewTask

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # as `shiftboss worker` does
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY") or 500)


async def reset(url):
    """Clear the identity of a template, so that each copy becomes a separate fleet."""
    await migrate(url)
    async with await Database.open(url) as db:
        await db.execute("DELETE FROM shiftboss.installation")


def tasks(n):
    params = {"sent": 0, "blob": BLOB} if BLOB else {"sent": 0}
    return [NewTask(task_type="noop", params=params) for _ in range(n)]


async def enqueue_bulk(url, n):
    async with await Database.open(url) as db:
        await db.tasks.enqueue(tasks(1))
        return await timed_async(put(db, n))


async def put(db, n, size=5000):
    """Enqueue in transactions of the same size as those of the peers."""
    for at in range(0, n, size):
        await db.tasks.copy(tasks(min(size, n - at)))


async def enqueue_single(url, n):
    async with await Database.open(url) as db:
        await db.tasks.enqueue(tasks(1))

        async def each():
            for _ in range(n):
                await db.tasks.enqueue([NewTask(task_type="noop", params={"sent": 0})])

        return await timed_async(each())


async def enqueue_clients(url, n, rate):
    """For `rate` seconds, as an application does it; each of the clients has a connection."""
    app = App("bench", url=url)

    @app.task("noop")
    async def noop(sent: int) -> None: ...

    async with await Database.open(url, max_size=n) as db:
        await app.use(db)
        return await clients_async(n, rate, lambda: noop.enqueue(sent=0))


async def latency(url, n, rate):
    async with await Database.open(url) as db:
        await pace_async(
            rate, n, lambda now: db.tasks.enqueue([NewTask(task_type="noop", params={"sent": now})])
        )


async def load(url, n, rate):
    k = max(1, round(rate * TICK))
    async with await Database.open(url) as db:
        await pace_async(1 / TICK, round(n / k), lambda _: put(db, k))


async def report(url, n, rate):
    """Run tasks that report progress `rate` times per second until they are stopped."""
    async with await Database.open(url) as db:
        await db.tasks.enqueue(
            [NewTask(task_type="report", params={"rate": rate}, priority=10) for _ in range(n)]
        )


async def hang(url, n):
    async with await Database.open(url) as db:
        await db.tasks.enqueue([NewTask(task_type="hang") for _ in range(n)])


def work(url):
    become(url, "worker", "shiftboss_tasks:handlers", "--concurrency", str(CONCURRENCY))


def supervise(url):
    become(url, "supervise", "--app", "shiftboss_tasks:handlers", "--queue", "default=2")


def become(url, *words):
    here = Path(__file__).resolve().parent
    os.environ["SHIFTBOSS_DATABASE_URL"] = url
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    os.execv(sys.executable, [sys.executable, "-m", "shiftboss", *words, "--log-level", "error"])


main(sys.modules[__name__])
