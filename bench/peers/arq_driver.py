"""arq on Redis: uvloop, 100 jobs at a time, results not kept, polling every 10 ms instead of every 500."""

import asyncio
import logging
import sys

import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from common import TICK, Tally, main, pace_async, timed_async

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
logging.disable(logging.WARNING)
JOBS, POLL = 100, 0.01


async def connected(url):
    return await create_pool(RedisSettings.from_dsn(url))


async def reset(url):
    await (await connected(url)).flushall()


async def put(redis, n, at_once=100):
    """arq has no bulk call, so as many calls run concurrently as it has connections."""
    for at in range(0, n, at_once):
        await asyncio.gather(*(redis.enqueue_job("noop", 0) for _ in range(min(at_once, n - at))))


async def enqueue_bulk(url, n):
    redis = await connected(url)
    await put(redis, 100)
    return await timed_async(put(redis, n))


async def enqueue_single(url, n):
    redis = await connected(url)
    await put(redis, 1)
    return await timed_async(put(redis, n, 1))


async def latency(url, n, rate):
    redis = await connected(url)
    await pace_async(rate, n, lambda now: redis.enqueue_job("noop", now))


async def load(url, n, rate):
    redis = await connected(url)
    k = max(1, round(rate * TICK))
    await pace_async(1 / TICK, round(n / k), lambda _: put(redis, k))


async def work(url):
    tally = Tally()

    async def noop(ctx, sent):
        tally.hit(sent)

    worker = Worker(
        [func(noop, name="noop")],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=JOBS,
        poll_delay=POLL,
        keep_result=0,
    )
    await worker.async_run()


main(sys.modules[__name__])
