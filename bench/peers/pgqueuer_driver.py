"""PgQueuer: asyncpg pool, uvloop, batches of 500; finished jobs leave its table for its log."""

import asyncio
import sys

import asyncpg
import uvloop
from common import BLOB, PAUSE, TICK, Tally, clients_async, main, pace_async, timed_async
from pgqueuer.core.qm import QueueManager
from pgqueuer.queries import Queries

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
BATCH = 500


async def reset(url):
    connection = await asyncpg.connect(url)
    await Queries.from_asyncpg_connection(connection).install()
    await connection.close()


async def connected(url):
    return Queries.from_asyncpg_connection(await asyncpg.connect(url))


async def put(queries, count, size=5000):
    for at in range(0, count, size):
        k = min(size, count - at)
        await queries.enqueue(["noop"] * k, [b"0 " + BLOB.encode()] * k, [0] * k)


async def enqueue_bulk(url, n):
    queries = await connected(url)
    await queries.enqueue("noop", b"0", 0)
    return await timed_async(put(queries, n))


async def enqueue_single(url, n):
    queries = await connected(url)
    await queries.enqueue("noop", b"0", 0)

    async def each():
        for _ in range(n):
            await queries.enqueue("noop", b"0", 0)

    return await timed_async(each())


async def enqueue_clients(url, n, rate):
    pool = await asyncpg.create_pool(url, min_size=n, max_size=n)
    queries = Queries.from_asyncpg_pool(pool)
    return await clients_async(n, rate, lambda: queries.enqueue("noop", b"0", 0))


async def latency(url, n, rate):
    queries = await connected(url)
    await pace_async(rate, n, lambda now: queries.enqueue("noop", str(now).encode(), 0))


async def load(url, n, rate):
    queries = await connected(url)
    k = max(1, round(rate * TICK))
    await pace_async(1 / TICK, round(n / k), lambda _: put(queries, k))


async def work(url):
    tally = Tally()
    pool = await asyncpg.create_pool(url, min_size=4, max_size=10)
    manager = QueueManager(Queries.from_asyncpg_pool(pool))

    @manager.entrypoint("noop")
    async def noop(job):
        if PAUSE:
            await asyncio.sleep(PAUSE)
        tally.hit(int(job.payload.split()[0]))

    await manager.run(batch_size=BATCH)


main(sys.modules[__name__])
