"""Celery on Redis: solo pool (its fastest for no-op tasks in one process), wide prefetch, results ignored."""

import os
import sys

from celery import Celery
from common import TICK, Tally, main, pace, timed

state = {}


def make_app(url):
    app = Celery("bench", broker=url)
    app.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=1000,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        task_store_errors_even_if_ignored=False,
        worker_send_task_events=False,
    )

    @app.task(name="noop", ignore_result=True)
    def noop(sent):
        state["tally"].hit(sent)

    return app, noop


def reset(url):
    import redis

    redis.from_url(url).flushall()


def put(app, noop, n):
    with app.producer_or_acquire() as producer:
        for _ in range(n):
            noop.apply_async((0,), producer=producer)


def enqueue_bulk(url, n):
    app, noop = make_app(url)
    put(app, noop, 1)
    return timed(lambda: put(app, noop, n))


enqueue_single = enqueue_bulk


def latency(url, n, rate):
    _, noop = make_app(url)
    pace(rate, n, lambda now: noop.apply_async((now,)))


def load(url, n, rate):
    app, noop = make_app(url)
    k = max(1, round(rate * TICK))
    pace(1 / TICK, round(n / k), lambda _: put(app, noop, k))


def work(url):
    state["tally"] = Tally()
    app, _ = make_app(url)
    name = f"bench{os.getpid()}@localhost"
    app.Worker(
        pool="solo", hostname=name, without_gossip=True, without_mingle=True, loglevel="ERROR", quiet=True
    ).start()


main(sys.modules[__name__])
