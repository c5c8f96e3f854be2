"""The files in the data directory of an embedded server, and the locks that track its users."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROLE = "shiftboss"
DATABASE = "shiftboss"


@dataclass(frozen=True)
class KeeperState:
    """The state file of the keeper, which exists only while the server accepts connections."""

    port: int
    postmaster: int
    socket_dir: str


class Layout:
    """Paths in a data directory. The locks are flocks, which the kernel releases with their process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cluster = root / "postgresql-18"
        self.password = root / "password"
        self.log = root / "server.log"
        self.start_lock = root / "start.lock"  # held while a process looks for or starts the server
        self.users_lock = root / "users.lock"  # shared by all users; the keeper tries to lock it exclusively
        self.keeper_lock = root / "keeper.lock"  # held by the keeper while it runs; contains its pid
        self.keep_mark = root / "keep"  # exists while the server should run without users
        self._state = root / "server.json"
        self._port = root / "port"

    def read_state(self) -> KeeperState | None:
        try:
            return KeeperState(**json.loads(self._state.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write_state(self, state: KeeperState | None) -> None:
        if state is None:
            self._state.unlink(missing_ok=True)
            return
        draft = self._state.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(state)))
        draft.replace(self._state)
        self._port.write_text(str(state.port))

    def remembered_port(self) -> int | None:
        try:
            return int(self._port.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def keeper_pid(self) -> int | None:
        """Return the keeper's pid (0 if not written yet), or None if there is no keeper."""
        if not self.keeper_lock.exists():
            return None
        fd = lock(self.keeper_lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if fd is not None:
            os.close(fd)
            return None
        text = self.keeper_lock.read_text().strip()
        return int(text) if text.isdigit() else 0


def lock(path: Path, how: int) -> int | None:
    """Lock `path`, creating it if necessary. Return None if LOCK_NB is set and the lock is taken."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, how)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def default_data_dir() -> Path:
    """Return SHIFTBOSS_DATA_DIR, or the platform's directory for user data."""
    if chosen := os.environ.get("SHIFTBOSS_DATA_DIR"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "shiftboss"
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "shiftboss"
