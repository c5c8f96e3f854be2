"""Migrate a database of 0.1.0 with many tasks while a worker of 0.1.0 runs, then run both versions.

    python -m bench.upgrade --rows 10000000      # how long tables are locked, and whether anything is lost
    python -m bench.upgrade --rows 10000000 --no-fsync      # the same without waiting for the disk

Needs git and the network: the old version is taken from its commit and installed into an environment of its
own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from shiftboss.db.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[1]
OLD = "18cd590"
DURABLE = {"fsync": "on", "synchronous_commit": "on", "max_wal_size": "8GB", "shared_buffers": "512MB"}
APP = """
import os, psycopg
from shiftboss import App
app = App("upgrade")

@app.task("load")
def load(n: int) -> int:
    with psycopg.connect(os.environ["LEDGER"], autocommit=True) as conn:
        conn.execute("INSERT INTO ledger VALUES (%s, %s)", [n, os.environ["VERSION"]])
    return n
"""
FILL = """
INSERT INTO public.tasks (id, task_type, params, queue, status, attempts, created_at, updated_at,
    generation_started_at, generation_processed_at, result_data, worker_id, last_worker_id)
SELECT gen_random_uuid(), 'old', '{"n": 1}', 'default', 'Complete', 0, t, t, t, t, '{"answer": 42}', 'w', 'w'
FROM generate_series(1, %(rows)s) n, LATERAL (SELECT now() - n * interval '10 ms' AS t) x
"""


LEFT = """
SELECT jsonb_agg(t) FROM (SELECT * FROM tasks WHERE status IN ('Queued', 'In Progress') LIMIT 2) t
"""


CLAIM: LiteralString = "SELECT count(*) FROM shiftboss.claim('probe', 1)"
ADD: LiteralString = "INSERT INTO public.tasks (task_type, queue) VALUES ('probe', 'none')"
BLOCKERS = "SELECT left(query, 200) FROM pg_stat_activity WHERE pid = ANY (pg_blocking_pids(%s))"


class Probe(threading.Thread):
    """Runs one statement again and again, and records the longest run."""

    def __init__(self, url: str, statement: LiteralString, prepare: LiteralString = "SELECT 1") -> None:
        super().__init__(daemon=True)
        self._url, self._statement, self._prepare = url, statement, prepare
        self.longest, self.stopping, self.pid = 0.0, threading.Event(), threading.Event()
        self.backend = 0

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as conn:
            conn.execute(self._prepare)
            self.backend = conn.info.backend_pid
            self.pid.set()
            while not self.stopping.wait(0.02):
                began = time.monotonic()
                conn.execute(self._statement)
                self.longest = max(self.longest, time.monotonic() - began)


class Watch(threading.Thread):
    """Looks every 20 ms which statement blocks a probe, and adds up the seconds of each."""

    def __init__(self, url: str, probe: Probe) -> None:
        super().__init__(daemon=True)
        self._url, self._probe = url, probe
        self.blocked: Counter[str] = Counter()

    def run(self) -> None:
        self._probe.pid.wait()
        with psycopg.connect(self._url, autocommit=True) as conn:
            last = time.monotonic()
            while not self._probe.stopping.wait(0.02):
                found = conn.execute(BLOCKERS, [self._probe.backend]).fetchall()
                now = time.monotonic()
                for (query,) in found[:1]:
                    self.blocked[" ".join(query.split())[:70]] += now - last
                last = now


def old_version(place: Path) -> Path:
    """The program `shiftboss` of 0.1.0."""
    tree, venv = place / "old", place / "old-venv"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", OLD], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, venv], check=True)
    subprocess.run([uv, "pip", "install", "-q", "--python", venv / "bin/python", tree], check=True)
    return venv / "bin/shiftboss"


@contextmanager
def worker(program: str | Path, version: str, place: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    env = os.environ | {
        "SHIFTBOSS_DATABASE_URL": url,
        "LEDGER": url,
        "VERSION": version,
        "SHIFTBOSS_DATA_DIR": str(place / f"data-{version}"),
        "PYTHONPATH": str(place),
    }
    with (place / f"{version}.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "worker", "upgraded:app", "-c", "8", "--id", f"{version}-worker"],
            env=env,
            cwd=place,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        except SystemExit:
            print((place / f"{version}.log").read_text()[-2000:], file=sys.stderr)
            print(one(url, LEFT), file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(60)


def one(url: str, query: str, *params: Any) -> Any:
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute(query, params).fetchone()  # type: ignore[arg-type]
        return row and row[0]


def until(condition: Any, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not so after {seconds:.0f} s: {what}")
        time.sleep(0.2)


def enqueue(url: str, first: int, count: int) -> None:
    tasks = [{"task_type": "load", "params": {"n": n}} for n in range(first, first + count)]
    one(url, "SELECT count(*) FROM shiftboss.enqueue(%s)", json.dumps(tasks))


def ran(url: str, version: str, least: int) -> bool:
    """Whether this version has run a task with this number or a higher one."""
    return bool(one(url, "SELECT EXISTS (SELECT FROM ledger WHERE version = %s AND n >= %s)", version, least))


def measure(rows: int, fsync: bool = True) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="shiftboss-upgrade-") as directory:
        place = Path(directory)
        place.chmod(0o755)
        (place / "upgraded.py").write_text(APP)
        settings = DURABLE if fsync else DURABLE | {"fsync": "off"}
        server = EmbeddedServer(place / "server", settings=settings, linger=0)
        url = server.acquire()
        try:
            return upgrade(place, url, rows)
        finally:
            server.stop()


def upgrade(place: Path, url: str, rows: int) -> dict[str, Any]:
    old = old_version(place)
    new = Path(sys.executable).with_name("shiftboss")
    env = os.environ | {"SHIFTBOSS_DATABASE_URL": url, "SHIFTBOSS_DATA_DIR": str(place / "data")}
    subprocess.run([old, "db", "migrate"], env=env, check=True, stdout=subprocess.DEVNULL)
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE ledger (n int, version text)")
        conn.execute("SET session_replication_role = replica")
        conn.execute(FILL.replace("%(rows)s", str(rows)))  # type: ignore[arg-type]
        conn.execute("VACUUM ANALYZE public.tasks")
    size = one(url, "SELECT pg_total_relation_size('public.tasks')")
    found: dict[str, Any] = {"rows": rows, "gigabytes": round(size / 1e9, 2)}
    with worker(old, "old", place, url) as old_worker:
        enqueue(url, 0, 500)
        until(lambda: ran(url, "old", 0), 60, "the old worker runs tasks")
        found |= migrate_beside(url, new, env)
        enqueue(url, 1000, 500)
        until(lambda: ran(url, "old", 1000), 60, "the old worker runs tasks of the new schema")
        with worker(new, "new", place, url):
            until(
                lambda: one(url, "SELECT count(*) FROM workers WHERE id = 'new-worker'") == 1,
                60,
                "the new one joins",
            )
            for first in range(2000, 12000, 1000):
                enqueue(url, first, 100)
                if ran(url, "new", 2000) and ran(url, "old", 2000):
                    break
                time.sleep(1)
            until(
                lambda: not one(url, "SELECT count(*) FROM tasks WHERE status IN ('Queued', 'In Progress')"),
                120,
                "all end",
            )
        found["old_worker_lived"] = old_worker.poll() is None
    found |= verdict(url)
    return found


def migrate_beside(url: str, new: Path, env: dict[str, str]) -> dict[str, Any]:
    """Migrate while tasks are enqueued and run. Returns the longest claim and the longest INSERT."""
    claims = Probe(url, CLAIM, "SELECT shiftboss.register('probe', p_queues => ARRAY['nowhere'])")
    inserts = Probe(url, ADD)
    watch = Watch(url, inserts)
    for each in (claims, inserts, watch):
        each.start()
    began = time.monotonic()
    done = subprocess.run([new, "db", "migrate"], env=env, capture_output=True, text=True)
    took = time.monotonic() - began
    for probe in (claims, inserts):
        probe.stopping.set()
        probe.join()
    if done.returncode:
        raise SystemExit(f"the migration failed:\n{done.stdout}\n{done.stderr}")
    one(url, "WITH gone AS (DELETE FROM tasks WHERE queue = 'none' RETURNING 1) SELECT count(*) FROM gone")
    return {
        "migrate_seconds": round(took, 1),
        "longest_claim_seconds": round(claims.longest, 2),
        "longest_insert_seconds": round(inserts.longest, 2),
        "inserts_blocked_by": {text: round(s, 2) for text, s in watch.blocked.most_common() if s >= 0.05},
    }


def verdict(url: str) -> dict[str, Any]:
    with psycopg.connect(url, autocommit=True) as conn:
        statuses = dict(
            conn.execute("SELECT status, count(*) FROM tasks WHERE task_type = 'load' GROUP BY 1").fetchall()
        )
        by = dict(conn.execute("SELECT version, count(*) FROM ledger GROUP BY 1").fetchall())
        twice = conn.execute(
            "SELECT count(*) FROM (SELECT n FROM ledger GROUP BY n HAVING count(*) > 1) x"
        ).fetchone()
    return {"statuses": statuses, "ran_by": by, "ran_twice": twice and twice[0]}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--rows", type=int, default=1_000_000)
    words.add_argument("--no-fsync", action="store_true", help="do not wait for the disk")
    given = words.parse_args()
    print(json.dumps(measure(given.rows, not given.no_fsync) | {"load": os.getloadavg()[0]}, indent=2))


if __name__ == "__main__":
    main()
