"""Measure tasks that do real work: they wait, compute, carry payloads, fail, and have keys and parents.

Part of `bench/run`. Rates are tasks a second from the moment at which a tenth was run until all are finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from measures import Bench, Figures, timed_drain, until
from systems import LIVE, System, fleet

IO_SECONDS = CPU_SECONDS = 0.005
KEYS, PARENTS = 10_000, 10
FLAKY = "INSERT INTO tasks (task_type, params) SELECT 'flaky', '{}' FROM generate_series(1, %(n)s::int)"
KEYED = f"""INSERT INTO tasks (task_type, params, concurrency_key)
SELECT 'keyed', jsonb_build_object('key', n %% {KEYS}), n %% {KEYS} FROM generate_series(1, %(n)s::int) n"""
CRUNCH = f"""INSERT INTO tasks (task_type, params)
SELECT 'crunch', '{{"seconds": {CPU_SECONDS}}}' FROM generate_series(1, %(n)s::int)"""
ROOTS = """INSERT INTO tasks (id, task_type, params)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'noop', '{"sent": 0}' FROM generate_series(1, %(n)s::int) n"""
CHILDREN = f"""INSERT INTO tasks (task_type, params, depends_on)
SELECT 'noop', '{{"sent": 0}}', ARRAY(
    SELECT lpad(to_hex(1 + (n * {PARENTS} + k) %% %(roots)s::int), 32, '0')::uuid
    FROM generate_series(1, {PARENTS}) k) FROM generate_series(1, %(n)s::int) n"""


def seeded(bench: Bench, system: System, fill: Callable[[psycopg.Connection], None], count: int) -> float:
    """The rate of one worker process, for tasks inserted by SQL."""
    url = bench.place(system)
    with psycopg.connect(url, autocommit=True) as conn:
        fill(conn)
    bench.settle(system, url)
    with fleet(system, url) as crew:
        seconds, tasks = timed_drain(system, crew, url, count)
    return tasks / seconds


def io(bench: Bench, system: System) -> Figures:
    """Tasks that wait for 5 ms."""
    return {"real_io": carried(bench, system, system.drain // 4, {"BENCH_PAUSE": str(IO_SECONDS)})}


def payloads(bench: Bench, system: System) -> Figures:
    """Tasks with payloads of 1 kB and 64 kB."""
    small = carried(bench, system, system.drain // 3, {"BENCH_BLOB": "1024"})
    large = carried(bench, system, max(system.drain // 40, 500), {"BENCH_BLOB": "65536"})
    return {"real_1k": small, "real_64k": large}


def carried(bench: Bench, system: System, count: int, env: dict[str, str]) -> float:
    """The rate of the system's own enqueue and worker, both with this environment."""
    url = bench.place(system)
    with environment(env):
        system.call("enqueue-bulk", url, n=count)
        bench.settle(system, url)
        with fleet(system, url) as crew:
            seconds, tasks = timed_drain(system, crew, url, count)
    return tasks / seconds


@contextmanager
def environment(env: dict[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started in this block."""
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def retries(bench: Bench, system: System) -> Figures:
    """Tasks that fail once."""
    count = system.drain // 4
    return {"real_retry": seeded(bench, system, lambda conn: _run(conn, FLAKY, n=count), count)}


def keys(bench: Bench, system: System) -> Figures:
    """Tasks with 10,000 keys, one running task per key."""
    count = system.drain // 2
    return {"real_keys": seeded(bench, system, lambda conn: _run(conn, KEYED, n=count), count)}


def edges(bench: Bench, system: System, total: int) -> Figures:
    """Tasks with `total` dependencies, ten parents per child."""
    children = total // PARENTS
    roots = max(children // 10, PARENTS)

    def fill(conn: psycopg.Connection) -> None:
        _run(conn, ROOTS, n=roots)
        _run(conn, CHILDREN, n=children, roots=roots)

    return {"real_edges": seeded(bench, system, fill, roots + children)}


def compute(bench: Bench, system: System) -> Figures:
    """Tasks with 5 ms of CPU time in child processes: the share of all processors that they get."""
    count = max(200, system.drain // 60)
    url = bench.place(system)
    with psycopg.connect(url, autocommit=True) as conn:
        _run(conn, CRUNCH, n=count)
        # one child process for each task that may run at a time
        with environment({"BENCH_CONCURRENCY": str(os.cpu_count() or 1)}), fleet(system, url):
            left = lambda: conn.execute(LIVE).fetchone() or (0,)  # noqa: E731
            until(lambda: left()[0] <= count * 0.9, "nothing was computed", 0.01)
            began, before = time.perf_counter(), left()[0]
            end = until(lambda: left()[0] == 0, "not all was computed", 0.01)
    rate = before / (end - began)
    return {"real_cpu": rate, "real_cpu_share": rate * CPU_SECONDS / (os.cpu_count() or 1)}


def _run(conn: psycopg.Connection, statement: str, **params: int) -> None:
    conn.execute(statement, params)  # type: ignore[call-overload]
