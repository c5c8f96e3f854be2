"""Locks on files that end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


def lock_file(path: Path) -> IO[str] | None:
    """Lock `path` until the result is closed or the process ends. None: another process holds the lock."""
    name = path.with_suffix(".lock")
    while True:
        lock = name.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if name.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                return lock
        except FileNotFoundError:
            pass
        except BlockingIOError:
            lock.close()
            return None
        lock.close()  # the former owner has just removed the file
