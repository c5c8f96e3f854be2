"""Reports on local disk while the database is away: not even the death of the worker loses a result."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import structlog

from shiftboss.model import task as words
from shiftboss.model.task import Claimed, Report

log = structlog.get_logger()

OUTCOMES: dict[str, Any] = {
    kind.__name__: kind for kind in (words.Complete, words.Fail, words.Postpone, words.Cancelled)
}


class Spool:
    """One file per process in a directory that the workers of a host share; private to the user."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = directory
        self._path = directory / f"{os.getpid()}-{id(self)}.reports"
        self._lock = self._path.with_suffix(".lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def write(self, reports: Sequence[Report], identity: str = "") -> None:
        """Replace what is kept by these, whole or not at all; `identity` is what their source needs later."""
        new = self._path.with_suffix(".new")
        with new.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.writelines(orjson.dumps(_pack(report, identity), default=str) + b"\n" for report in reports)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._path)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give up the lock; what is still kept is left for the next process."""
        lock = self._path.with_suffix(".lock")
        if not self._path.exists():
            lock.unlink(missing_ok=True)
        self._lock.close()

    @contextmanager
    def left_behind(self) -> Iterator[dict[str, list[Report]]]:
        """Reports of processes that are gone, by identity; their files go if the block ends well."""
        found: dict[str, list[Report]] = {}
        locks = []
        try:
            for path in sorted(self._directory.glob("*.reports")):
                lock = path.with_suffix(".lock").open("w")
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:  # its process lives
                    lock.close()
                    continue
                locks.append((path, lock))
                for identity, report in _read(path):
                    found.setdefault(identity, []).append(report)
            yield found
            for path, _ in locks:
                path.unlink(missing_ok=True)
                path.with_suffix(".lock").unlink(missing_ok=True)
        finally:
            for _, lock in locks:
                lock.close()


def _pack(report: Report, identity: str) -> dict[str, Any]:
    outcome = report.outcome._asdict()
    if isinstance(report.outcome, words.Complete) and report.outcome.result is not None:
        outcome["result"] = report.outcome.result.decode()
    task = report.task._asdict() | {"params": {}, "timeout": None}
    return {
        "identity": identity,
        "task": task,
        "kind": type(report.outcome).__name__,
        "outcome": outcome,
        "seconds": report.seconds,
    }


def _read(path: Path) -> Iterator[tuple[str, Report]]:
    for line in path.read_bytes().splitlines():
        try:
            kept = orjson.loads(line)
            yield kept.get("identity", ""), _unpack(kept)
        except (ValueError, KeyError, TypeError):
            log.error("a kept report can not be read and is left out", file=str(path))


def _unpack(kept: dict[str, Any]) -> Report:
    outcome = kept["outcome"]
    if kept["kind"] == "Complete" and outcome["result"] is not None:
        outcome["result"] = outcome["result"].encode()
    return Report(claimed_from_json(kept["task"]), OUTCOMES[kept["kind"]](**outcome), kept["seconds"])


def claimed_from_json(fields: dict[str, Any]) -> Claimed:
    """A Claimed that went through JSON."""
    for name in ("created_at", "ready_at", "started_at", "deadline"):
        fields[name] = fields[name] and datetime.fromisoformat(fields[name])
    for name in ("id", "run_id"):
        fields[name] = fields[name] and UUID(fields[name])
    return Claimed(**fields)
