"""What the dashboard costs: its first view, idle pages, pages with millions of tasks behind them, its memory.

Run `python -m bench.page [--tasks 10000000]` in the project's environment. It needs Chromium, as the browser
tests do, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
from playwright.sync_api import sync_playwright
from tests.extensions.page.stage import CHROMIUM, FLAGS

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.extensions.admin.service import create_app
from shiftboss.model.settings import Settings

QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "8GB"}
IDLE_PAGES, IDLE_SECONDS = 200, 30
API = "/api/v1/admin"
PAINTED = """() => new Promise(done => new PerformanceObserver(
    list => list.getEntriesByName("first-contentful-paint").forEach(entry => done(entry.startTime))
).observe({type: "paint", buffered: true}))"""
PAGES = (
    "/", "/?span=1d", "/?span=7d", "/?span=30d", "/tasks", "/tasks?status=Queued", "/tasks?status=Failed",
    "/tasks?task_type=type+7", "/tasks?text=no+such+text", "/tasks/{task}", "/tasks/{failed}", "/workers",
    "/queues", "/events", "/schedules", "/approvals", "/access", "/runs", "/providers", "/vectorizers",
)  # fmt: skip
REQUESTED = (*PAGES[:1], "/tasks", "/tasks/{task}", "/workers", "/queues", "/events", f"{API}/overview",
    f"{API}/tasks", f"{API}/tasks/{{task}}", f"{API}/workers", f"{API}/queues", "/metrics", "/api/docs",
    "/tasks?text={n}", "/events?kind={n}")  # fmt: skip

# One week of history, newest last: 85 % complete, 10 % waiting, 4 % failed, 1 % cancelled. A tenth of the
# waiting tasks sleep.
FILL = """
INSERT INTO tasks (id, task_type, queue, priority, tenant, params, status, hold, worker_id, last_worker_id,
    lease, attempts, error_message, created_at, updated_at, generation_started_at, generation_processed_at)
SELECT uuidv7(at - now()), 'type ' || kind, 'queue ' || kind %% 6, 5 + n %% 3, 'tenant ' || n %% 4,
    jsonb_build_object('order', n, 'customer', md5(n::text), 'lines', n %% 90), status,
    CASE WHEN waits AND n %% 1000 < 10 THEN 'sleep' END,
    CASE WHEN waits THEN NULL ELSE worker END, CASE WHEN waits THEN NULL ELSE worker END,
    CASE WHEN waits THEN NULL ELSE n END, CASE WHEN status = 'Failed' THEN 3 ELSE 0 END,
    CASE WHEN status = 'Failed' THEN 'ConnectionError: host ' || n %% 500 || ' refused the connection' END,
    at, at, CASE WHEN waits THEN NULL ELSE at + interval '1 s' END,
    CASE WHEN waits THEN NULL ELSE at + interval '1 s' + n %% 700 * interval '10 ms' END
FROM generate_series(%(first)s::int, %(last)s::int) n,
    LATERAL (SELECT now() - interval '7 days' + n * (interval '7 days' / %(tasks)s::int) AS at,
        n * 7 %% 12 AS kind, 'host-' || n %% 2 || ':' || n %% 8 AS worker,
        CASE WHEN n %% 1000 < 100 THEN 'Queued' WHEN n %% 1000 < 140 THEN 'Failed' WHEN n %% 1000 < 150
            THEN 'Cancelled' ELSE 'Complete' END AS status, n %% 1000 < 100 AS waits) x
"""
ATTEMPTS = """
INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome, error,
    error_group)
SELECT id, lease, a, worker_id, generation_started_at,
    generation_processed_at - (3 - a) * interval '1 minute', 'failed',
    error_message, substr(md5(task_type), 1, 12)
FROM tasks, generate_series(1, 3) a WHERE status = 'Failed'
"""
GROUPS = """
INSERT INTO shiftboss.error_groups (id, error_type, place, message, first_seen, last_seen, count, task_types,
    task_id)
SELECT substr(md5(task_type), 1, 12), 'ConnectionError', 'shop/orders.py in charge', min(error_message),
    min(created_at), max(generation_processed_at), 3 * count(*), ARRAY[task_type], (array_agg(id))[1]
FROM tasks WHERE status = 'Failed' GROUP BY task_type
"""
# A month of statistics, one row per minute, worker and type.
STATS = """
INSERT INTO shiftboss.stats (minute, worker_id, queue, task_type, completed, failed, seconds, buckets)
SELECT date_trunc('minute', now()) - m * interval '1 minute', 'host-' || w %% 2 || ':' || w,
    'queue ' || kind %% 6, 'type ' || kind, 10 + m %% 7, m %% 50 / 49, 30 + m %% 9,
    '{0,0,1,2,3,2,1,1,0,0,0,0,0,0,0}'
FROM generate_series(0, %s::int) m, generate_series(0, 7) w, generate_series(0, 11) kind
"""
FLEET = """
INSERT INTO workers (id, host, pid, version, queues, last_heartbeat, lease_expires_at)
SELECT 'host-' || n % 2 || ':' || n, 'host-' || n % 2, 4000 + n, '1.0', NULL, now(), now() + interval '1 day'
FROM generate_series(0, 7) n;
UPDATE tasks SET status = 'In Progress', hold = NULL, worker_id = 'host-0:0', lease = 1,
    generation_started_at = now(), lease_expires_at = now() + interval '1 day'
WHERE id IN (SELECT id FROM tasks WHERE status = 'Queued' AND hold IS NULL ORDER BY created_at LIMIT 1000);
INSERT INTO shiftboss.events (kind, worker_id, details) SELECT 'worker.joined', 'host-0:0', '{"n": 1}'
FROM generate_series(1, 100000);
"""


def fill(url: str, tasks: int, days: int) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")  # no triggers; their totals are counted below
        for first in range(1, tasks + 1, 500_000):
            last = min(first + 499_999, tasks)
            conn.execute(FILL, {"first": first, "last": last, "tasks": tasks})
        for statement in (ATTEMPTS, GROUPS, FLEET):
            conn.execute(statement)
        conn.execute(STATS, [days * 1440])
        conn.execute("RESET session_replication_role")
        conn.execute("SELECT shiftboss.retally(), shiftboss.count_queues(2000)")
        for _ in range(days + 1):  # as a leader does from time to time; each call folds a day
            conn.execute("SELECT shiftboss.fold_stats()")
        conn.execute("INSERT INTO shiftboss.lanes SELECT *, now() FROM shiftboss.new_lanes()")
        conn.execute("VACUUM ANALYZE")


class Recorder(Database):
    """A database that remembers its statements."""

    statements: list[tuple[str, Any]]

    def forget(self) -> None:
        """Drop the cached results of the read model."""
        vars(self).pop("insights", None)
        self._families.clear()
        self.statements = []

    async def fetch(self, sql: str, params: Any = None) -> Any:
        self.statements.append((sql, params))
        return await super().fetch(sql, params)


@asynccontextmanager
async def asked(url: str) -> AsyncIterator[tuple[Recorder, httpx.AsyncClient]]:
    """Yield a service and a client of it in the same process."""
    async with await Recorder.open(url) as db:
        db.forget()
        app = create_app(db, Settings.load())
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            client.base_url = httpx.URL("http://localhost")
            yield db, client


async def pages(url: str, rounds: int) -> dict[str, Any]:
    """Return for each page the time of an uncached answer, and what its statements cost the server."""
    found, example = {}, await examples(url)
    for path in (path.format(**example) for path in PAGES):
        took, used = [], []
        async with asked(url) as (db, client):
            for _ in range(rounds + 1):
                db.forget()
                began, before = time.perf_counter(), time.process_time()
                answer = await client.get(path, headers={"Accept": "text/html"})
                took.append(time.perf_counter() - began)
                used.append(time.process_time() - before)
                assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
            statements = db.statements
        del took[0], used[0]  # the first request compiles the templates
        plans = [await explained(url, *statement) for statement in statements]
        found[path] = {
            "ms": round(1000 * statistics.median(took)),
            "best_ms": round(1000 * min(took)),
            "python_cpu_ms": round(1000 * min(used)),
            "statements": len(plans),
            "sql_cpu_ms": round(sum(plan["ms"] for plan in plans), 1),
            "blocks": sum(plan["blocks"] for plan in plans),
            "slowest": max(plans, key=lambda plan: plan["ms"]),
        }
        print(path, json.dumps(found[path]), file=sys.stderr, flush=True)
    return found


async def examples(url: str) -> dict[str, str]:
    async with await Database.open(url) as db:
        rows = [
            await db.fetch(f"SELECT id FROM tasks WHERE status = '{status}' LIMIT 1")
            for status in ("Complete", "Failed")
        ]
    return {"task": str(rows[0][0]["id"]), "failed": str(rows[1][0]["id"])}


async def explained(url: str, sql: str, params: Any) -> dict[str, Any]:
    """Return the CPU time of the server for a statement, best of three, and the blocks that it reads."""
    used = []
    async with await Database.open(url) as db, db.transaction() as conn:
        cursor = await conn.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
        row = await cursor.fetchone()
        (plan,) = row["QUERY PLAN"]
        for _ in range(3):
            before = cpu_seconds(conn.info.backend_pid)
            await (await conn.execute(sql, params)).fetchall()
            used.append(cpu_seconds(conn.info.backend_pid) - before)
    blocks = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    return {"ms": round(1000 * min(used), 1), "blocks": blocks, "sql": " ".join(sql.split())[:120]}


def cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def service(url: str) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the address and the process of an admin service."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "shiftboss", "admin", "--port", str(port)]
    process = subprocess.Popen(
        command, env=os.environ | {"SHIFTBOSS_DATABASE_URL": url}, stdout=subprocess.DEVNULL
    )
    try:
        address = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            try:
                httpx.get(f"{address}/healthz")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def first_view(address: str, rounds: int) -> dict[str, Any]:
    """Return the bytes of a first view, and when the browser painted it. Every round starts with no cache."""
    sizes, paints = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for _ in range(rounds):
            page = browser.new_context().new_page()
            session = page.context.new_cdp_session(page)
            session.send("Network.enable")
            received: list[float] = []
            session.on(
                "Network.loadingFinished", lambda event, got=received: got.append(event["encodedDataLength"])
            )
            page.goto(address, wait_until="load")
            paints.append(page.evaluate(PAINTED))
            sizes.append(sum(received))
            page.context.close()
        browser.close()
    return {
        "bytes": max(sizes),
        "painted_ms": round(statistics.median(paints)),
        "best_ms": round(min(paints)),
    }


async def idle_pages(address: str, process: psutil.Process) -> dict[str, Any]:
    """Return the CPU time of the service while many pages are open and nothing happens."""
    limits, paths = httpx.Limits(max_connections=None), ("/", "/tasks", "/workers", "/queues", "/events")
    async with (
        httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client,
        AsyncExitStack() as stack,
    ):
        for n in range(IDLE_PAGES):
            stream = client.stream("GET", paths[n % len(paths)], headers={"Accept": "text/event-stream"})
            answer = await stack.enter_async_context(stream)
            assert answer.status_code == 200
        await asyncio.sleep(5)
        used, began = sum(process.cpu_times()[:2]), time.monotonic()
        await asyncio.sleep(IDLE_SECONDS)
        share = (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - began)
    return {"pages": IDLE_PAGES, "share_of_a_core": round(share, 4)}


def memory(address: str, process: psutil.Process, requests: int, example: dict[str, str]) -> list[int]:
    """Return the resident megabytes of the service after each tenth of the requests."""
    found = []
    with httpx.Client(base_url=address, timeout=60) as client:
        for n in range(requests):
            if n % (requests // 10) == 0:
                found.append(round(process.memory_info().rss / 1e6))
                print(f"{n} requests: {found[-1]} MB", file=sys.stderr, flush=True)
            client.get(REQUESTED[n % len(REQUESTED)].format(n=n, **example)).raise_for_status()
    return [*found, round(process.memory_info().rss / 1e6)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tasks", type=int, default=10_000_000)
    options.add_argument("--days", type=int, default=30, help="days of statistics")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--requests", type=int, default=10_000)
    options.add_argument("--only", default="pages,view,idle,memory")
    options.add_argument("--url", help="a database that an earlier run filled")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="shiftboss-bench-") as folder:
        server = None if given.url else EmbeddedServer(Path(folder) / "postgres", settings=QUICK, linger=0)
        url = given.url or server.acquire()
        try:
            if server:
                asyncio.run(migrate(url))
                fill(url, given.tasks, given.days)
            print(json.dumps(measured(url, given), indent=2))
        finally:
            if server:
                server.release()
                server.stop()


def measured(url: str, given: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"tasks": given.tasks, "load": os.getloadavg()}
    wanted = given.only.split(",")
    if "pages" in wanted:
        result["pages"] = asyncio.run(pages(url, given.rounds))
    with service(url) as (address, process):
        if "view" in wanted:
            result["first_view"] = first_view(address, given.rounds)
        if "idle" in wanted:
            result["idle"] = asyncio.run(idle_pages(address, process))
    if "memory" in wanted:
        with service(url) as (address, process):
            example = asyncio.run(examples(url))
            result["memory_mb"] = memory(address, process, given.requests, example)
    return result


if __name__ == "__main__":
    main()
