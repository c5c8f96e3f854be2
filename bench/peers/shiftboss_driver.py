"""Shiftboss: the worker is `python -m shiftboss worker`; finished tasks are kept with their record."""

import asyncio
import os
import sys
from pathlib import Path

import uvloop
from common import TICK, main, pace_async, timed_async

from shiftboss.db import Database
from shiftboss.db.migrate import migrate
from shiftboss.model.task import NewTask

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())  # as `shiftboss worker` does
CONCURRENCY = 500


async def reset(url):
    await migrate(url)


def tasks(n):
    return [NewTask(task_type="noop", params={"sent": 0}) for _ in range(n)]


async def enqueue_bulk(url, n):
    async with await Database.open(url) as db:
        await db.tasks.enqueue(tasks(1))
        return await timed_async(put(db, n))


async def put(db, n, size=5000):
    """In transactions of the same size as the peers'."""
    for at in range(0, n, size):
        await db.tasks.copy(tasks(min(size, n - at)))


async def enqueue_single(url, n):
    async with await Database.open(url) as db:
        await db.tasks.enqueue(tasks(1))

        async def each():
            for _ in range(n):
                await db.tasks.enqueue([NewTask(task_type="noop", params={"sent": 0})])

        return await timed_async(each())


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
    """Tasks that report progress `rate` times a second for as long as they may."""
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
