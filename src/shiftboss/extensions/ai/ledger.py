"""Stores the cost of calls on disk until the database has it, so that a killed process loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from uuid import UUID, uuid4

import orjson

from shiftboss.lifecycle.locks import lock_file, private_directory
from shiftboss.log import get_logger

log = get_logger(__name__)
Entry = dict[str, Any]
REWRITE_SIZE = 1024 * 1024  # bytes at which the file is rewritten without settled entries


class Ledger:
    """One file of JSON lines per process, in a directory that the user's processes on a host share.

    Settled entries stay in the file until all are settled or it reaches `REWRITE_SIZE`. A process that
    takes the file over may settle them again, which has no effect.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = private_directory(directory)
        lock = None
        while lock is None:  # another process can briefly hold a new lock to look for entries
            self._path = directory / f"{os.getpid()}-{uuid4().hex[:12]}.calls"
            lock = lock_file(self._path)
        self._lock = lock
        self._file: IO[bytes] | None = None
        self._size = 0

    def note(self, entry: Entry) -> None:
        """Write an entry. It survives a crash of the process, and after `sync` a crash of the machine."""
        if self._file is None:
            self._file = os.fdopen(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600), "ab", 0)
        line = orjson.dumps(entry, default=str) + b"\n"
        self._file.write(line)
        self._size += len(line)

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def settled(self, waiting: Mapping[str, Entry]) -> None:
        """Drop all entries except `waiting`."""
        if self._file is None or (waiting and self._size < REWRITE_SIZE):
            return
        self._file.truncate(0)
        self._size = 0
        for entry in waiting.values():
            self.note(entry)

    def left_behind(self, *, empty: bool = False) -> Iterator[Entry]:
        """Take over the entries of processes that have ended, and delete their files.

        With `empty`, also delete files without entries: a killed process leaves its lock file behind.
        """
        where = self._directory
        named = where.glob("*.*") if empty else filter(_has_entries, where.glob("*.calls"))
        for path in sorted({each.with_suffix(".calls") for each in named} - {self._path}):
            if (lock := lock_file(path)) is None:
                continue
            for entry in _read(path):
                self.note(entry)
                yield entry
            self.sync()
            path.unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
            lock.close()

    def close(self) -> None:
        """Release the lock; the next process takes over the entries that are not settled."""
        if self._file is not None:
            self._file.close()
            if self._size == 0:
                self._path.unlink(missing_ok=True)
        if not self._path.exists():
            self._path.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.close()


def _has_entries(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def _read(path: Path) -> Iterator[Entry]:
    """Yield the valid entries. A process that was killed may have left its last line incomplete."""
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            entry = orjson.loads(line)
            known = {"call_id": str(UUID(entry["call_id"])), "noted_at": float(entry["noted_at"])}
        except (ValueError, KeyError, TypeError, AttributeError):
            log.error("skipping an unreadable AI spend entry", file=str(path))
            continue
        yield entry | known
