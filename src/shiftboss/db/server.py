"""The PostgreSQL process: make its cluster, start it on a free port, stop it, clear a crash's remains."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from shiftboss.db.installation import Account, programs, server_account
from shiftboss.db.layout import DATABASE, ROLE, Layout, State
from shiftboss.model.errors import EmbeddedServerError

if TYPE_CHECKING:
    import psycopg

START_SECONDS = 45.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
LONGEST_SOCKET_DIR = 80  # a socket's whole path has to fit into 103 bytes on some systems
BIGGEST_LOG = 10 * 1024 * 1024
PR_SET_PDEATHSIG = 1

INITDB = (
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    # Our password is 192 random bits: stretching it makes nothing safer and every connect 5 ms longer.
    "--set=scram_iterations=1",
)

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "scram_iterations": "4096",  # for roles that people make, with passwords that they choose
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "min_wal_size": "80MB",
    "wal_compression": "on",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "autovacuum_naptime": "15s",  # a queue's rows die young
    "autovacuum_vacuum_scale_factor": "0.05",
    "jit": "off",
    "search_path": "public",  # the role has the name of our schema: a plain CREATE TABLE must not land there
    "timezone": "UTC",
    "log_timezone": "UTC",
}


_OTHER_CLIENTS = """
SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Server:
    """One cluster and, while it runs, its postmaster as our child."""

    def __init__(self, layout: Layout, settings: dict[str, str]) -> None:
        self._layout = layout
        self._settings = SETTINGS | settings
        self._account: Account | None = server_account()
        self._uid = self._account.uid if self._account else None
        self._gid = self._account.gid if self._account else None
        self._groups: list[int] | None = [] if self._account else None
        self._bin = programs(self._account)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket_dir: Path | None = None
        self._port = 0

    def prepare(self) -> None:
        """Make the cluster if there is none, and clear what a crash left behind."""
        _shorten(self._layout.log)
        if not self._layout.cluster.exists():
            self._initialise()
        self.clear_remains()

    def start(self) -> None:
        """Start and wait until it accepts connections; another port if ours was taken meanwhile."""
        self._make_socket_dir()
        deadline = time.monotonic() + START_SECONDS
        port = self._layout.remembered_port()
        while True:
            self._port = port if port and _is_free(port) else _free_port()
            self._launch()
            if self._becomes_ready(deadline):
                return
            if time.monotonic() > deadline or _is_free(self._port):
                self.stop()
                raise EmbeddedServerError(f"the embedded server did not start: {self._last_words()}")
            port = None

    def stop(self) -> None:
        """Shut down fast but cleanly; by force only when that takes too long."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait()
        if self._socket_dir is not None:
            shutil.rmtree(self._socket_dir, ignore_errors=True)

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def state(self) -> State:
        assert self._process is not None
        return State(self._port, self._process.pid, str(self._socket_dir))

    def clear_remains(self) -> None:
        """End what is left of an earlier server, and drop a pid file that names a stranger."""
        remains = [process for process in psutil.process_iter(["name"]) if self._is_ours(process)]
        for process in remains:
            _quietly(process, signal.SIGINT)
        _, stubborn = psutil.wait_procs(remains, STOP_SECONDS)
        for process in stubborn:
            _quietly(process, signal.SIGKILL)
        psutil.wait_procs(stubborn, 5)
        (self._layout.cluster / "postmaster.pid").unlink(missing_ok=True)

    def ensure_database(self) -> None:
        with self._connect("postgres") as conn:
            if not conn.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
                conn.execute(f"CREATE DATABASE {DATABASE}")

    def has_clients(self) -> bool:
        import psycopg

        try:
            with self._connect("postgres") as conn:
                return conn.execute(_OTHER_CLIENTS).rowcount > 0
        except psycopg.OperationalError:
            return self.alive()  # too busy to answer is not left alone

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        import psycopg  # late: most keepers never need the driver again

        return psycopg.connect(
            host="127.0.0.1",
            port=self._port,
            user=ROLE,
            dbname=database,
            password=self._layout.password.read_text(),
            autocommit=True,
            connect_timeout=5,
        )

    def _initialise(self) -> None:
        """Run initdb in a draft that is renamed when whole: a killed initdb leaves no half cluster."""
        draft = self._layout.cluster.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        self._give_away(draft)
        self._make_socket_dir()
        assert self._socket_dir is not None
        secret = self._socket_dir / "password"
        secret.touch(mode=0o600)
        secret.write_text(self._layout.password.read_text())
        self._give_away(secret)
        try:
            self._run_initdb(draft, secret)
        finally:
            secret.unlink()
        draft.rename(self._layout.cluster)

    def _run_initdb(self, draft: Path, secret: Path) -> None:
        done = subprocess.run(  # noqa: S603 -- the wheel's own program
            [str(self._bin / "initdb"), "-D", self._as_seen(draft), "-U", ROLE, f"--pwfile={secret}", *INITDB]
            + (["--no-sync"] if self._settings.get("fsync") == "off" else []),
            cwd=draft,
            capture_output=True,
            check=False,
            user=self._uid,
            group=self._gid,
            extra_groups=self._groups,
        )
        if done.returncode:
            shutil.rmtree(draft, ignore_errors=True)
            words = done.stderr.decode(errors="replace").strip().splitlines() or ["initdb failed"]
            cause = next((line for line in words if "error" in line or "No space" in line), words[-1])
            raise EmbeddedServerError(f"no database could be made in {self._layout.root}: {cause}")

    def _launch(self) -> None:
        options = self._settings | {"port": str(self._port), "unix_socket_directories": str(self._socket_dir)}
        keeper = os.getpid()
        with self._layout.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 -- the wheel's own program
                [str(self._bin / "postgres"), "-D", self._as_seen(self._layout.cluster)]
                + [word for key, value in options.items() for word in ("-c", f"{key}={value}")],
                cwd=self._layout.cluster,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: _die_with(keeper),
                user=self._uid,
                group=self._gid,
                extra_groups=self._groups,
            )

    def _becomes_ready(self, deadline: float) -> bool:
        assert self._process is not None
        pid_file = self._layout.cluster / "postmaster.pid"
        while self._process.poll() is None and time.monotonic() < deadline:
            if pid_file.exists():
                lines = pid_file.read_text().splitlines()
                if len(lines) > 7 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready":
                    return True
            time.sleep(POLL_SECONDS)
        return False

    def _as_seen(self, directory: Path) -> str:
        """The directory's name for the server, which is started inside it.

        As another account than ours it may not be able to walk there (say under /root); on Linux it can
        name the place where it already stands.
        """
        if self._account is not None and sys.platform == "linux":
            return "/proc/self/cwd"
        return str(directory)

    def _give_away(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)

    def _make_socket_dir(self) -> None:
        if self._socket_dir is not None and self._socket_dir.is_dir():
            return
        inside = self._layout.root / "run"
        if self._account is None and len(os.fsencode(inside)) <= LONGEST_SOCKET_DIR:
            inside.mkdir(mode=0o700, exist_ok=True)
            self._socket_dir = inside
            return
        self._socket_dir = Path(tempfile.mkdtemp(prefix="shiftboss-", dir="/tmp"))
        self._give_away(self._socket_dir)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if not process.info["name"].startswith("postgres"):
                return False
            return Path(process.cwd()) == self._layout.cluster.resolve()
        except psutil.Error:
            return False

    def _last_words(self) -> str:
        lines = self._layout.log.read_text(errors="replace").splitlines()[-20:]
        return next((line for line in reversed(lines) if "FATAL" in line or "PANIC" in line), "see its log")


def _die_with(parent: int) -> None:
    """In the child: be shut down by the kernel when the keeper ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            os._exit(1)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _quietly(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(number)


def _shorten(log: Path) -> None:
    if log.exists() and log.stat().st_size > BIGGEST_LOG:
        os.truncate(log, 0)
