"""Dramatiq on Redis: one process, eight threads, only the middleware that a plain task needs."""

import itertools
import os
import signal
import sys

from common import TICK, Tally, main, pace, timed

os.environ.setdefault("dramatiq_queue_prefetch", "1000")

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.worker import Worker

THREADS = 8
state = {}


def make(url):
    broker = RedisBroker(url=url, middleware=[])
    dramatiq.set_broker(broker)

    @dramatiq.actor(actor_name="noop", broker=broker)
    def noop(sent):
        state["tally"].hit(sent)

    return broker, noop


def reset(url):
    import redis

    redis.from_url(url).flushall()


def put(noop, n):
    for _ in itertools.repeat(None, n):
        noop.send(0)


def enqueue_bulk(url, n):
    _, noop = make(url)
    put(noop, 1)
    return timed(lambda: put(noop, n))


enqueue_single = enqueue_bulk


def latency(url, n, rate):
    _, noop = make(url)
    pace(rate, n, noop.send)


def load(url, n, rate):
    _, noop = make(url)
    k = max(1, round(rate * TICK))
    pace(1 / TICK, round(n / k), lambda _: put(noop, k))


def work(url):
    state["tally"] = Tally()
    broker, _ = make(url)
    worker = Worker(broker, worker_threads=THREADS)
    worker.start()
    signal.pause()


main(sys.modules[__name__])
