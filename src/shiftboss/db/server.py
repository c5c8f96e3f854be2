"""The process of the embedded PostgreSQL: create its cluster, start and stop it, clean up after crashes."""

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

from shiftboss.db.layout import DATABASE, ROLE, KeeperState, Layout
from shiftboss.db.programs import Account, programs, server_account
from shiftboss.model.errors import EmbeddedServerError

if TYPE_CHECKING:
    import psycopg

START_SECONDS = 45.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
LONGEST_SOCKET_DIR = 80  # some systems limit the path of a socket to 103 bytes
BIGGEST_LOG = 10 * 1024 * 1024
PR_SET_PDEATHSIG = 1

INITDB = (
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    # The password has 192 random bits: more iterations add no security and cost 5 ms per connection.
    "--set=scram_iterations=1",
)

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "scram_iterations": "4096",  # for roles whose passwords are chosen by people
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "min_wal_size": "80MB",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "autovacuum_naptime": "15s",  # rows of a queue are short-lived
    "autovacuum_vacuum_scale_factor": "0.05",
    "jit": "off",
    "search_path": "public",  # the default would put new tables into our schema, which has the role's name
    "timezone": "UTC",
    "log_timezone": "UTC",
}


_OTHER_CLIENTS = """
SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Server:
    """A cluster and its postmaster, which runs as a child process."""

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
        """Create the cluster if necessary, and clean up after a crash."""
        _shorten(self._layout.log)
        if not self._layout.cluster.exists():
            self._initialise()
        self.clear_remains()

    def start(self) -> None:
        """Start the server and wait until it accepts connections. Uses another port if its own is taken."""
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
                raise EmbeddedServerError(f"the embedded server did not start: {self._last_error()}")
            port = None

    def stop(self) -> None:
        """Stop with a fast shutdown, or with an immediate one if that takes too long."""
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

    def state(self) -> KeeperState:
        assert self._process is not None
        return KeeperState(self._port, self._process.pid, str(self._socket_dir))

    def clear_remains(self) -> None:
        """End processes of an earlier server and remove its pid file."""
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
            return self.alive()  # a server that is too busy to answer is in use

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        import psycopg  # imported late, because the keeper rarely needs the driver

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
        """Run initdb in a draft directory and rename it: a killed initdb must not leave a partial cluster."""
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
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["initdb failed"]
            cause = next((line for line in lines if "error" in line or "No space" in line), lines[-1])
            raise EmbeddedServerError(f"cannot create a database in {self._layout.root}: {cause}")

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
        """Return the path by which the server, which starts in the directory, can access it.

        A different account may not be able to traverse the path (for example under /root). On Linux it can
        use its working directory instead.
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

    def _last_error(self) -> str:
        lines = self._layout.log.read_text(errors="replace").splitlines()[-20:]
        return next((line for line in reversed(lines) if "FATAL" in line or "PANIC" in line), "see its log")


def _die_with(parent: int) -> None:
    """Ask the kernel to stop this child process when the keeper ends for any reason."""
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
