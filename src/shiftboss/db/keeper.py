"""The parent process of the embedded server: starts it, restarts it while it has users, and stops it.

Run as `python -m shiftboss.db.keeper DATA_DIR LINGER SETTINGS`. Prints `ready` or a one-line error, then
continues in the background. On Linux, the kernel stops the server if the keeper is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from shiftboss.db.layout import Layout, lock
from shiftboss.db.server import Server
from shiftboss.model.errors import EmbeddedServerError

TICK_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 5.0
STEADY_SECONDS = 30.0


class Keeper:
    def __init__(self, layout: Layout, linger: float, settings: dict[str, str]) -> None:
        self._layout = layout
        self._linger = linger
        self._server = Server(layout, settings)
        self._stopping = threading.Event()
        self._started_at = 0.0
        self._restarts = 0

    def start(self) -> None:
        if crashed := self._layout.read_state():  # a killed keeper could not clean up
            shutil.rmtree(crashed.socket_dir, ignore_errors=True)
        self._layout.write_state(None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self._server.prepare()
        self._server.start()
        self._server.ensure_database()
        self._announce()

    def run(self) -> None:
        """Watch the server until a signal arrives or no users are left."""
        while not self._stopping.wait(self._pause()):
            if self._unused():
                break
            if not self._server.alive():
                self._revive()
            elif time.monotonic() - self._started_at > STEADY_SECONDS:
                self._restarts = 0
        self.stop()

    def stop(self) -> None:
        self._layout.write_state(None)
        self._server.stop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping.set()

    def _announce(self) -> None:
        self._started_at = time.monotonic()
        self._layout.write_state(self._server.state())

    def _pause(self) -> float:
        """Seconds until the next check, with backoff for a server that dies repeatedly, as on a full disk."""
        if self._server.alive():
            return TICK_SECONDS
        return min(TICK_SECONDS * (1 << min(self._restarts, 10)), LONGEST_PAUSE_SECONDS)

    def _revive(self) -> None:
        """Restart a killed server, on the same port if it is still free."""
        self._restarts += 1
        try:
            self._layout.write_state(None)
            self._server.clear_remains()
            self._server.start()
            self._announce()
        except (EmbeddedServerError, OSError) as error:
            _note(f"{error}; trying again in {self._pause():.1f} s")

    def _unused(self) -> bool:
        """Whether there were no users for `linger` seconds. If so, keeps the users lock until the end."""
        if self._layout.keep_mark.exists():
            return False
        fd = lock(self._layout.users_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if fd is None:
            return False
        if time.time() - os.fstat(fd).st_mtime < self._linger:
            os.close(fd)
            return False
        if self._server.has_clients():  # for example psql, which does not hold the lock
            os.utime(fd)
            os.close(fd)
            return False
        return True


def main() -> int:
    if os.fork():
        os._exit(0)  # detach the keeper from the process that started it
    layout, linger, settings = Layout(Path(sys.argv[1])), float(sys.argv[2]), json.loads(sys.argv[3])
    fd = lock(layout.keeper_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if fd is None:
        return _answer("another keeper is running; try again")
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())
    keeper = Keeper(layout, linger, settings)
    try:
        keeper.start()
    except (EmbeddedServerError, OSError) as error:
        keeper.stop()
        return _answer(str(error))
    _answer("ready")
    try:
        keeper.run()
    except (EmbeddedServerError, OSError) as error:
        _note(str(error))
        keeper.stop()
    os.close(fd)  # before the users lock is released: a process that waits for it must see no keeper
    return 0


def _note(message: str) -> None:
    """Write to the server's log, which is our stderr. Ignores a full disk."""
    with contextlib.suppress(OSError):
        print(f"keeper: {message}", file=sys.stderr, flush=True)


def _answer(line: str) -> int:
    """Send a line to the process that started us, which may be gone, and close the pipe to it."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, line.replace("\n", " ").encode() + b"\n")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return 1


if __name__ == "__main__":
    sys.exit(main())
