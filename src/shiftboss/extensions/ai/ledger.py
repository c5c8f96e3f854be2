"""What calls cost, on local disk until the database has it: not even the death of the process loses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from uuid import UUID, uuid4

import orjson

from shiftboss.log import get_logger

log = get_logger(__name__)
Entry = dict[str, Any]
ROOMY = 1024 * 1024  # bytes of settled entries, after which the file is written again


class Ledger:
    """One file per process in a directory that the processes of a host share; private to the user.

    Entries are lines; an entry whose `call_id` is settled stays in the file until nothing else is in it.
    Settling twice is harmless, so a line too many does no harm.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._path = directory / f"{os.getpid()}-{uuid4().hex[:12]}.calls"
        lock = _lock(self._path)
        assert lock is not None, f"{self._path} belongs to this process"
        self._lock = lock
        self._file: IO[bytes] | None = None
        self._size = 0

    def note(self, entry: Entry) -> None:
        """Outlives the process from here on; `sync` makes it outlive the machine."""
        if self._file is None:
            self._file = os.fdopen(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600), "ab", 0)
        line = orjson.dumps(entry, default=str) + b"\n"
        self._file.write(line)
        self._size += len(line)

    def sync(self) -> None:
        if self._file is not None:
            os.fsync(self._file.fileno())

    def settled(self, waiting: Mapping[str, Entry]) -> None:
        """All but these are settled."""
        if self._file is None or (waiting and self._size < ROOMY):
            return
        self._file.truncate(0)
        self._size = 0
        for entry in waiting.values():
            self.note(entry)

    def left_behind(self) -> Iterator[Entry]:
        """Takes over the entries of processes that are gone; each is noted here before its file goes."""
        # Also those with a lock and no calls: killed while all was well.
        for path in sorted({each.with_suffix(".calls") for each in self._directory.glob("*.*")}):
            if path == self._path or (lock := _lock(path)) is None:
                continue
            for entry in _read(path):
                self.note(entry)
                yield entry
            self.sync()
            path.unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
            lock.close()

    def close(self) -> None:
        """Give up the lock; what is not settled is left for the next process."""
        if self._file is not None:
            self._file.close()
            if self._size == 0:
                self._path.unlink(missing_ok=True)
        if not self._path.exists():
            self._path.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.close()


def _lock(path: Path) -> IO[str] | None:
    """Held as long as it is open, however its process ends. None: another process has it."""
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
        lock.close()  # its former owner has just removed it


def _read(path: Path) -> Iterator[Entry]:
    """The last line may be half written, by a process that was killed."""
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            entry = orjson.loads(line)
            known = {"call_id": str(UUID(entry["call_id"])), "noted_at": float(entry["noted_at"])}
        except (ValueError, KeyError, TypeError, AttributeError):
            log.error("a kept AI call cannot be read and is left out", file=str(path))
            continue
        yield entry | known
