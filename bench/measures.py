"""The measurements. Each function measures one system once and returns figures by name."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil
import psycopg
from systems import SHIFTBOSS, Fleet, System, fleet

from servers import Servers

Figures = dict[str, float]
PROBES, PROBE_RATE = 600, 50.0
WARM_UP = 0.1
PATIENCE = 300.0
LONGEST_RERUN = 60.0


@dataclass
class Bench:
    servers: Servers
    templates: set[str] = field(default_factory=set)

    def place(self, system: System) -> str:
        """Create an empty store for this system, copied from a template."""
        if system.store == "redis":
            system.call("reset", self.servers.redis)
            return self.servers.redis
        template = f"base_{system.name}"
        if template not in self.templates:
            system.call("reset", self.servers.fresh(template))
            self.templates.add(template)
        return self.servers.fresh(f"bench_{system.name}", template)

    def seed(self, system: System, url: str, count: int) -> None:
        """The system's own bulk enqueue; ours for the limit, and SQL where millions are wanted."""
        if system.ours and count >= 1_000_000:
            with psycopg.connect(url, autocommit=True) as conn:
                conn.execute(SEED, [count])
        else:
            (SHIFTBOSS if system.ours else system).call("enqueue-bulk", url, n=count)

    def settle(self, system: System, url: str) -> None:
        """Give all systems the same start: fresh statistics and no pending writes."""
        if system.store == "postgres":
            with psycopg.connect(url, autocommit=True) as conn:
                conn.execute("VACUUM (ANALYZE)")
                conn.execute("CHECKPOINT")


def until(condition: Callable[[], bool], what: str, step: float = 0.002, patience: float = PATIENCE) -> float:
    """Wait until the condition is true. Returns that time."""
    deadline = time.perf_counter() + patience
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError(what)
        time.sleep(step)
    return time.perf_counter()


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def enqueue_bulk(bench: Bench, system: System) -> Figures:
    url = bench.place(system)
    return {"enqueue_bulk": system.bulk / system.call("enqueue-bulk", url, n=system.bulk)["seconds"]}


def enqueue_single(bench: Bench, system: System) -> Figures:
    url = bench.place(system)
    return {"enqueue_single": system.single / system.call("enqueue-single", url, n=system.single)["seconds"]}


def timed_drain(system: System, crew: Fleet, url: str, count: int, before: int = 0) -> tuple[float, int]:
    """Seconds and tasks from the end of the warm-up to the last finished task."""
    total = crew.counter.total
    start = until(lambda: total() - before >= count * WARM_UP, f"{system.name}: nothing was run")
    done = total() - before
    end = until(lambda: total() - before >= count, f"{system.name}: not all was run")
    if system.remaining is not None:
        with psycopg.connect(url, autocommit=True) as conn:
            end = until(
                lambda: conn.execute(system.remaining or "").fetchone() == (0,),
                f"{system.name}: not all was finished",
            )
    return end - start, count - done


def drain(bench: Bench, system: System, workers: int = 1) -> Figures:
    """No-op tasks; the rate after all workers work and a tenth of the tasks has been run, until the last one
    is finished."""
    url = bench.place(system)
    count = system.drain * workers
    bench.seed(system, url, count)
    bench.settle(system, url)
    with fleet(system, url, workers) as crew:
        until(lambda: all(crew.counter.each()[:workers]), f"{system.name}: somebody runs nothing")
        ran, worker_cpu, server_cpu = crew.counter.total(), crew.cpu_seconds(), bench.servers.postgres_cpu()
        seconds, tasks = timed_drain(system, crew, url, count)
        ran = crew.counter.total() - ran
        worker_cpu = crew.cpu_seconds() - worker_cpu
        server_cpu = bench.servers.postgres_cpu() - server_cpu
    figures = {f"drain_{workers}": tasks / seconds}
    if workers == 1:
        figures["cpu_worker_us"] = worker_cpu / ran * 1e6
        if system.store == "postgres":
            figures["cpu_server_us"] = server_cpu / ran * 1e6
    return figures


def drain_two(bench: Bench, system: System) -> Figures:
    return drain(bench, system, workers=2)


def ready(system: System, crew: Fleet, url: str) -> None:
    system.call("latency", url, n=20, rate=PROBE_RATE)
    until(lambda: len(crew.counter.probes()) >= 20, f"{system.name}: no probe came through", 0.02)


def latency(bench: Bench, system: System, load: float = 0.0, name: str = "busy") -> Figures:
    """Time from just before the enqueue to the start of the handler, with `load` other tasks per second."""
    name = name if load else "idle"
    url = bench.place(system)
    with fleet(system, url) as crew:
        ready(system, crew, url)
        megabytes = crew.megabytes()
        beside = (
            system.start("load", url, n=int(load * (PROBES / PROBE_RATE + 4)), rate=load) if load else None
        )
        if beside is not None:
            until(lambda: crew.counter.total() > 20 + load, f"{system.name}: no load", 0.02)
        system.call("latency", url, n=PROBES, rate=PROBE_RATE)
        until(lambda: len(crew.counter.probes()) >= PROBES + 20, f"{system.name}: probes are missing", 0.02)
        values = crew.counter.probes()[20:]
        if beside is not None:
            beside.kill()
            beside.wait()
    figures = {
        f"latency_{name}_p50": percentile(values, 0.5),
        f"latency_{name}_p99": percentile(values, 0.99),
    }
    return figures if load else figures | {"memory_mb": megabytes}


# With ids in order of time, as our own enqueue makes them.
NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
ID = f"(lpad(to_hex({NOW}), 20, '0') || lpad(to_hex(n), 12, '0'))::uuid"
SEED = f"""INSERT INTO public.tasks (id, task_type, params)
SELECT {ID}, 'noop', '{{"sent": 0}}' FROM generate_series(1, %s::int) n"""
FINISHED = f"""INSERT INTO public.tasks (id, task_type, params, status, worker_id, attempts, created_at,
    updated_at, generation_started_at, generation_processed_at)
SELECT {ID}, 'noop', '{{"sent": 0}}', 'Complete', 'old', 1, now() - interval '1 hour', now(), now(), now()
FROM generate_series(1, %s::int) n"""


def backlog(bench: Bench, system: System, waiting: int, finished: int = 0) -> Figures:
    """The drain rate with a large backlog, or with a large number of finished tasks."""
    url = bench.place(system)
    for at in range(0, finished, 1_000_000):
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(FINISHED, [min(1_000_000, finished - at)])
    for at in range(0, waiting, 1_000_000):
        bench.seed(system, url, min(1_000_000, waiting - at))
    bench.settle(system, url)
    count = min(waiting, system.drain)
    with fleet(system, url) as crew:
        total = crew.counter.total
        start = until(lambda: total() >= count * WARM_UP, f"{system.name}: nothing was run")
        before = total()
        end = until(lambda: total() >= count, f"{system.name}: not all was run")
        after = total()
    name = f"finished_{finished}" if finished else f"waiting_{waiting}"
    return {name: (after - before) / (end - start)}


@contextlib.contextmanager
def open_transaction(url: str) -> Iterator[None]:
    """Keep a transaction of another session open, which prevents the removal of dead rows."""
    with psycopg.connect(url) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("SELECT count(*) FROM pg_class")
        yield


def held_open(bench: Bench, system: System, rounds: int) -> Figures:
    """Drain rounds of 10,000 tasks while another transaction stays open."""
    url = bench.place(system)
    rates = []
    with open_transaction(url), fleet(system, url) as crew:
        ready(system, crew, url)
        for _ in range(rounds):
            before = crew.counter.total()
            bench.seed(system, url, 10_000)
            seconds, tasks = timed_drain(system, crew, url, 10_000, before)
            rates.append(tasks / seconds)
    edge = max(1, rounds // 5)
    first, last = statistics.median(rates[:edge]), statistics.median(rates[-edge:])
    return {"held_first": first, "held_last": last, "held_share": last / first}


def progress_cost(bench: Bench, system: System) -> Figures:
    """The drain rate of a worker in which 100 tasks report progress 20 times per second each."""
    url = bench.place(system)
    with fleet(system, url) as crew:
        ready(system, crew, url)
        system.call("report", url, n=100, rate=20)
        with psycopg.connect(url, autocommit=True) as conn:
            reporting = "SELECT count(*) FROM public.tasks WHERE progress IS NOT NULL"
            until(lambda: conn.execute(reporting).fetchone() == (100,), "nobody reports", 0.05)
        before = crew.counter.total()
        count = system.drain
        bench.seed(system, url, count)
        total = crew.counter.total
        start = until(lambda: total() - before >= count * WARM_UP, "nothing was run")
        done = total() - before
        end = until(lambda: total() - before >= count, "not all was run")
    return {"drain_beside_progress": (count - done) / (end - start)}


HOLDER = """SELECT w.pid, t.lease FROM public.tasks t JOIN public.workers w ON w.id = t.worker_id
WHERE t.task_type = 'hang' AND t.status = 'In Progress'"""


def killed(bench: Bench, system: System) -> Figures:
    """From SIGKILL of a supervised process that runs a task to the task's next claim."""
    url = bench.place(system)
    with supervised(system, url), psycopg.connect(url, autocommit=True) as conn:
        system.call("hang", url, n=1)
        until(lambda: conn.execute(HOLDER).fetchone() is not None, "nothing was run", 0.05)
        pid, lease = conn.execute(HOLDER).fetchone() or (0, 0)
        began = time.perf_counter()
        os.kill(pid, signal.SIGKILL)

        def again() -> bool:
            row = conn.execute(HOLDER).fetchone()
            return row is not None and row[1] != lease

        return {"rerun_seconds": until(again, "not run again") - began}


def killed_peer(bench: Bench, system: System) -> Figures:
    """From SIGKILL of one of two workers to the next run of its task; limited to a minute."""
    url = bench.place(system)
    with fleet(system, url, workers=2) as crew:
        ready(system, crew, url)
        before = crew.counter.each()
        system.start("latency", url, {"BENCH_SENT": "-1"}, n=1, rate=1.0).wait()
        until(lambda: crew.counter.each() != before, f"{system.name}: nothing was run")
        holder = next(n for n, ran in enumerate(crew.counter.each()) if ran != before[n])
        began = time.perf_counter()
        crew.processes[holder].kill()
        ran = crew.counter.total()
        with contextlib.suppress(TimeoutError):
            until(lambda: crew.counter.total() > ran, "not run again", 0.02, patience=LONGEST_RERUN)
        return {"rerun_seconds": min(time.perf_counter() - began, LONGEST_RERUN)}


@contextlib.contextmanager
def supervised(system: System, url: str) -> Iterator[None]:
    """Run two supervised workers. All processes are killed at the end."""
    process = system.start("supervise", url)
    try:
        with psycopg.connect(url, autocommit=True) as conn:
            joined = "SELECT count(*) >= 2 FROM public.workers WHERE status = 'active' AND pid IS NOT NULL"
            until(lambda: conn.execute(joined).fetchone() == (True,), "no workers came", 0.05)
        yield
    finally:
        family = psutil.Process(process.pid)
        members = [family, *family.children(recursive=True)]
        for member in members:
            member.kill()
        psutil.wait_procs(members)
