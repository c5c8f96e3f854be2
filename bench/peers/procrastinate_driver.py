"""Procrastinate: 100 jobs at a time in one process; finished jobs are kept, as it does by default."""

import asyncio
import logging
import sys

import procrastinate
from common import BLOB, PAUSE, TICK, Tally, clients_async, main, pace_async, timed_async

logging.disable(logging.WARNING)
CONCURRENCY = 100


def make_app(url, connections=20):
    pool = procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=connections)
    app = procrastinate.App(connector=pool)
    state = {}

    @app.task(name="noop", queue="bench")
    async def noop(sent, blob=""):
        if PAUSE:
            await asyncio.sleep(PAUSE)
        state["tally"].hit(sent)

    return app, noop, state


async def reset(url):
    app, _, _ = make_app(url)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue_bulk(url, n):
    app, noop, _ = make_app(url)
    rows = [{"sent": 0, "blob": BLOB} if BLOB else {"sent": 0}] * n
    async with app.open_async():
        await noop.defer_async(sent=0)
        return await timed_async(batches(noop, rows))


async def batches(noop, rows, size=5000):
    for at in range(0, len(rows), size):
        await noop.batch_defer_async(*rows[at : at + size])


async def enqueue_single(url, n):
    app, noop, _ = make_app(url)
    async with app.open_async():
        await noop.defer_async(sent=0)

        async def each():
            for _ in range(n):
                await noop.defer_async(sent=0)

        return await timed_async(each())


async def enqueue_clients(url, n, rate):
    app, noop, _ = make_app(url, n)
    async with app.open_async():
        return await clients_async(n, rate, lambda: noop.defer_async(sent=0))


async def latency(url, n, rate):
    app, noop, _ = make_app(url)
    async with app.open_async():
        await pace_async(rate, n, lambda now: noop.defer_async(sent=now))


async def load(url, n, rate):
    app, noop, _ = make_app(url)
    rows = [{"sent": 0}] * max(1, round(rate * TICK))
    async with app.open_async():
        await pace_async(1 / TICK, round(n / len(rows)), lambda _: noop.batch_defer_async(*rows))


async def work(url):
    app, _, state = make_app(url)
    state["tally"] = Tally()
    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY)


main(sys.modules[__name__])
