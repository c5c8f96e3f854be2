"""Directories of this user's processes, and locks on files that end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from shiftboss.model.errors import ConfigError


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


def private_directory(path: Path) -> Path:
    """Create a directory in the data directory, for files of this user's processes."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        if os.access(path, os.W_OK):
            return path
        reason = "it is not writable"
    raise ConfigError(
        f"cannot use the directory {path}: {reason}",
        hint="choose a data directory that this user can write to, with --data-dir or SHIFTBOSS_DATA_DIR",
    )
