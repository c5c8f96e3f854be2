"""The client side of the embedded PostgreSQL: find or start the server, and return its URL.

Every client process holds a shared lock on one file. A small keeper process (see `keeper`) is the server's
parent: it restarts a killed server, and stops it when no process holds the lock. No crash leaves an orphan.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from shiftboss.db.layout import DATABASE, ROLE, KeeperState, Layout, default_data_dir, lock
from shiftboss.db.programs import package_home
from shiftboss.model.errors import EmbeddedServerError

START_SECONDS = 60.0
STOP_SECONDS = 40.0
POLL_SECONDS = 0.02
ROOM_NEEDED = 100 * 1024 * 1024
ROOM_TO_START = 20 * 1024 * 1024  # one WAL segment and some reserve
SOURCE = Path(__file__).resolve().parents[2]

_known: dict[str, EmbeddedServer] = {}


def current(url: str) -> str:
    """Return the current URL of an embedded server. A restart may change its port."""
    server = _known.get(url)
    return (server and server.url()) or url


class EmbeddedServer:
    """One user of the server in a data directory. Methods block: async code calls `acquire` in a thread."""

    def __init__(
        self, data_dir: Path | None = None, *, settings: Mapping[str, str] | None = None, linger: float = 2.0
    ) -> None:
        self.data_dir = (data_dir or default_data_dir()).expanduser().absolute()
        self._layout = Layout(self.data_dir)
        self._settings = dict(settings or {})
        self._linger = linger
        self._users_fd: int | None = None

    def acquire(self) -> str:
        """Register as a user, start the server if necessary, and return its URL."""
        self._prepare()
        start_fd = _taken(lock(self._layout.start_lock, fcntl.LOCK_EX))
        try:
            if self._users_fd is None:
                # This waits while a keeper without users is still shutting its server down.
                self._users_fd = _taken(lock(self._layout.users_lock, fcntl.LOCK_SH))
            os.utime(self._users_fd)
            url = self._url(self._answering())
            _known[url] = self
            return url
        except BaseException:
            self.release()
            raise
        finally:
            os.close(start_fd)

    def release(self) -> None:
        """Unregister as a user. The server stops some time after its last user."""
        if self._users_fd is not None:
            os.utime(self._users_fd)  # the keeper waits for a while after the last use
            os.close(self._users_fd)
            self._users_fd = None

    def keep(self) -> None:
        """Keep the server running without users until `stop`."""
        self._layout.keep_mark.touch()

    def revive(self) -> None:
        """Restart the server if it was killed together with its keeper, but not if it was stopped."""
        # A regular stop removes the state file, so only a killed keeper leaves one behind.
        if self._layout.keeper_pid() is None and self._layout.read_state() is not None:
            self.acquire()

    def running(self) -> KeeperState | None:
        """Return the server's state as written by the keeper, or None if it is not running."""
        return self._layout.read_state() if self._layout.keeper_pid() is not None else None

    def url(self) -> str | None:
        """Return the URL of the server if it is running, without starting it."""
        state = self.running()
        return self._url(state) if state else None

    def stop(self) -> bool:
        """Stop the server even if it is in use. Return whether it was running."""
        if self._layout.keep_mark.exists():
            self._layout.keep_mark.unlink()
        pid = self._layout.keeper_pid()
        if pid is None:
            return False
        if pid:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self._layout.keeper_pid() is not None:
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"the embedded server (keeper {pid}) did not stop in {STOP_SECONDS:.0f} s",
                    hint=f"see {self._layout.log}",
                )
            time.sleep(POLL_SECONDS)
        return True

    def erase(self) -> None:
        """Stop the server and delete its data, password and log."""
        self.stop()
        shutil.rmtree(self._layout.cluster, ignore_errors=True)
        for path in (self._layout.password, self._layout.log):
            path.unlink(missing_ok=True)

    def _prepare(self) -> None:
        if sys.platform == "win32":
            raise EmbeddedServerError(
                "the embedded server does not run on Windows", hint="set SHIFTBOSS_DATABASE_URL"
            )
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_password(self._layout.password)
        except OSError as error:
            raise EmbeddedServerError(
                f"cannot write to the data directory {self.data_dir}: {error.strerror}",
                hint="choose another one with --data-dir or SHIFTBOSS_DATA_DIR",
            ) from error

    def _answering(self) -> KeeperState:
        """Return the state of a server that answers: the state file of a dying server may be out of date."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            state = self._running() or self._start()
            if self._answers(state):
                return state
            if time.monotonic() > deadline:
                raise self._failure("the embedded server is running but does not accept connections")
            time.sleep(POLL_SECONDS)

    def _answers(self, state: KeeperState) -> bool:
        import psycopg  # imported late, because `--help` and the keeper do not need the driver

        try:
            psycopg.connect(self._url(state), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _running(self) -> KeeperState | None:
        """Wait while a keeper is starting its server. Return None if there is no keeper."""
        deadline = time.monotonic() + START_SECONDS
        while self._layout.keeper_pid() is not None:
            if state := self._layout.read_state():
                return state
            self._require_room()
            if time.monotonic() > deadline:
                raise self._failure(f"the embedded server is not ready after {START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        return None

    def _require_room(self) -> None:
        """Check the free space: on a full disk, the server cannot even log why it ends."""
        exists = self._layout.cluster.exists()
        needed = ROOM_TO_START if exists else ROOM_NEEDED
        if shutil.disk_usage(self.data_dir).free >= needed:
            return
        raise EmbeddedServerError(
            f"not enough disk space for a database in {self.data_dir} ({needed >> 20} MB required)",
            hint="free some space; the existing data is intact"
            if exists
            else "free some space, or choose another directory with --data-dir or SHIFTBOSS_DATA_DIR",
        )

    def _start(self) -> KeeperState:
        package_home()  # raises if it is not installed
        self._require_room()
        arguments = [str(self.data_dir), str(self._linger), json.dumps(self._settings)]
        with self._layout.log.open("ab") as log:
            keeper = subprocess.Popen(  # noqa: S603 -- our own module
                [sys.executable, "-P", "-m", "shiftboss.db.keeper", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env=_environment(),
                start_new_session=True,
            )
        assert keeper.stdout is not None
        with keeper.stdout:
            answer = keeper.stdout.readline().decode()
        keeper.wait()  # the process has forked; the keeper itself is not our child
        state = self.running()
        if answer.strip() != "ready" or state is None:
            raise self._failure(answer.strip() or "the embedded server did not start")
        return state

    def _failure(self, message: str) -> EmbeddedServerError:
        return EmbeddedServerError(
            message, hint=f"see {self._layout.log}, or use another server with SHIFTBOSS_DATABASE_URL"
        )

    def _url(self, state: KeeperState) -> str:
        password = quote(self._layout.password.read_text().strip())
        return f"postgresql://{ROLE}:{password}@127.0.0.1:{state.port}/{DATABASE}"


def _make_password(path: Path) -> None:
    """Write a random password once and atomically, readable only by its owner."""
    if path.exists():
        return
    draft = path.with_name(f".password-{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_urlsafe(24))
        draft.replace(path) if not path.exists() else draft.unlink()
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _environment() -> dict[str, str]:
    # libpq's variables would affect initdb and the server. PYTHONPATH lets the keeper import this package.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    path = [str(SOURCE), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path), "LC_ALL": "C"}


def _taken(fd: int | None) -> int:
    assert fd is not None  # a blocking lock either succeeds or raises
    return fd
