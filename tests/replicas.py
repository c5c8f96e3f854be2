"""A primary and a standby of a test's own, which can be cut off, killed and promoted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from shiftboss.db.programs import programs, server_account
from tests import servers

DATABASE, ROLE = "app", "app"
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_receiver_status_interval": "1s",  # less than a second is rounded to never
    "shared_buffers": "16MB",
}


class Node:
    """One server. It keeps its port from one start to the next."""

    def __init__(self, place: Path, home: Path) -> None:
        self.place, self.data, self._home = place, place / "data", home
        self.port = servers.free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, program: str, *words: Any) -> None:
        servers.run([self._home / program, *words], servers.own(self.place))

    def start(self) -> None:
        chosen = SETTINGS | {"port": str(self.port), "unix_socket_directories": ""}
        options = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        self._process = servers.start([self._home / "postgres", "-D", self.data, *options], self.place)
        servers.await_port(self.port, self.place / "log")
        self.wait("SELECT 1")

    def kill(self) -> None:
        """Stop at once, as in a crash: nothing more is written or sent to the other server."""
        self.thaw()
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop every process of the server, as a stuck disk does: connections stay open and get no answer."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            postmaster = psutil.Process(self._process.pid)
            for process in (postmaster, *postmaster.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def ask(self, statement: str, database: str = "postgres") -> list[Any]:
        with psycopg.connect(
            f"host=127.0.0.1 port={self.port} user=postgres dbname={database}", autocommit=True
        ) as conn:
            cursor = conn.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def set(self, name: str, value: str) -> None:
        self.ask(f"ALTER SYSTEM SET {name} = '{value}'")
        self.ask("SELECT pg_reload_conf()")

    def wait(self, condition: str) -> None:
        """Until the query returns a row; also while the server does not take connections yet."""
        servers.until(lambda: self._holds(condition), f"{condition} on port {self.port}")

    def _holds(self, condition: str) -> bool:
        try:
            return bool(self.ask(condition))
        except psycopg.OperationalError:
            return False


class Pair:
    """`primary` and `standby`; `url` finds whichever of them takes writes."""

    def __init__(self, place: Path) -> None:
        home = servers.debian_programs() if os.environ.get(servers.ODD) else programs(server_account())
        self.primary, self.standby = (Node(place / name, home) for name in ("primary", "standby"))
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        self.url = f"postgresql://{ROLE}@{hosts}/{DATABASE}?target_session_attrs=read-write"

    def start(self) -> None:
        for node in (self.primary, self.standby):
            node.place.mkdir()
        self.primary.run("initdb", "-D", self.primary.data, "-U", "postgres", "--auth=trust", "--no-sync")
        self.primary.start()
        self.primary.ask(f"CREATE ROLE {ROLE} LOGIN")
        self.primary.ask(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
        source = f"host=127.0.0.1 port={self.primary.port} user=postgres application_name=standby"
        self.standby.run(
            "pg_basebackup",
            "-d",
            source,
            "-D",
            self.standby.data,
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
        )
        self.standby.start()
        self.follow()

    def follow(self) -> None:
        """Wait until the standby has everything."""
        self.primary.wait(
            "SELECT 1 FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn() AND state = 'streaming'"
        )

    def synchronous(self) -> None:
        """From now on a commit is confirmed only when the standby has it."""
        self.primary.set("synchronous_standby_names", "standby")
        self.primary.wait("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")

    def cut(self) -> None:
        """From now on the standby gets nothing: what is committed is lost in a failover."""
        self.standby.set("primary_conninfo", "")
        self.primary.wait("SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_replication)")

    def fail_over(self) -> None:
        """The primary is gone, and the standby takes its place."""
        self.primary.kill()
        self.promote()

    def promote(self) -> None:
        """The standby takes writes from now on, whatever the primary does."""
        self.standby.ask("SELECT pg_promote()")
        self.standby.wait("SELECT 1 WHERE NOT pg_is_in_recovery()")


@contextmanager
def pair() -> Iterator[Pair]:
    place = Path(tempfile.mkdtemp(prefix="shiftboss-pair-", dir=servers.in_memory()))
    place.chmod(0o755)
    made = Pair(place)
    try:
        made.start()
        yield made
    finally:
        made.primary.kill()
        made.standby.kill()
        shutil.rmtree(place, ignore_errors=True)
