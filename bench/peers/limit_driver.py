"""The limit: only the SQL calls, on one plain connection, without handlers or an event loop.

Enqueue goes into a twin of our table: see bare.py.
"""

import asyncio
import sys

import psycopg
from bare import TABLE
from common import TICK, Tally, main, pace, timed

from shiftboss.db.migrate import migrate

BATCH = 500
CLAIM = "SELECT id, lease, params FROM shiftboss.claim('limit', %s)"
COMPLETE = "SELECT shiftboss.complete(%s, %s, %s::jsonb[])"
INSERT = """WITH i AS (INSERT INTO public.bare (task_type, params) VALUES ('noop', '{"sent": 0}'))
SELECT pg_notify('bare', 'default')"""
PROBE = "INSERT INTO public.tasks (task_type, params) VALUES ('noop', jsonb_build_object('sent', %s::bigint))"
LOAD = """INSERT INTO public.tasks (task_type, params)
SELECT 'noop', '{"sent": 0}' FROM generate_series(1, %s::int)"""


def reset(url):
    asyncio.run(migrate(url))
    with psycopg.connect(url) as conn:
        conn.execute(TABLE)
        conn.execute("DELETE FROM shiftboss.installation")


def enqueue_bulk(url, n, size=5000):
    with psycopg.connect(url, autocommit=True) as conn:
        row = b'noop\t{"sent": 0}\n'

        def copy():
            for at in range(0, n, size):
                with conn.cursor().copy("COPY public.bare (task_type, params) FROM STDIN") as copy:
                    copy.write(row * min(size, n - at))

        return timed(copy)


def enqueue_single(url, n):
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(INSERT, prepare=True)
        return timed(lambda: [conn.execute(INSERT, prepare=True) for _ in range(n)])


def latency(url, n, rate):
    with psycopg.connect(url, autocommit=True) as conn:
        pace(rate, n, lambda now: conn.execute(PROBE, [now], prepare=True))


def load(url, n, rate):
    k = max(1, round(rate * TICK))
    with psycopg.connect(url, autocommit=True) as conn:
        pace(1 / TICK, round(n / k), lambda _: conn.execute(LOAD, [k], prepare=True))


def work(url):
    """Process batches until there are none, then wait for a notification or half a second."""
    tally = Tally()
    with psycopg.connect(url, autocommit=True) as ear, psycopg.connect(url, autocommit=True) as conn:
        ear.execute("LISTEN shiftboss_tasks")
        cursor = conn.cursor(binary=True)
        asleep = False
        while True:
            rows = cursor.execute(CLAIM, [BATCH], prepare=True).fetchall()
            if not rows and not asleep:  # ask for a notice, then look once more
                asleep = bool(cursor.execute("SELECT shiftboss.arm()", prepare=True).fetchall())
                continue
            if not rows:
                for notice in ear.notifies(timeout=0.5, stop_after=1):
                    cursor.execute("SELECT shiftboss.hear(%s)", [int(notice.payload)], prepare=True)
                    asleep = False
                continue
            for _, _, params in rows:
                tally.hit(params["sent"])
            ids, leases, _ = zip(*rows, strict=True)
            cursor.execute(COMPLETE, [list(ids), list(leases), [None] * len(ids)], prepare=True)


main(sys.modules[__name__])
