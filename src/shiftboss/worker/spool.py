"""Reports on local disk while the database is away, so that they survive the end of the worker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson

from shiftboss.db.steps import sealed_waits
from shiftboss.lifecycle.locks import lock_file, private_directory
from shiftboss.log import get_logger
from shiftboss.model import task as words
from shiftboss.model.codec import current
from shiftboss.model.task import Claimed, Report

log = get_logger(__name__)

OUTCOMES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (words.Complete, words.Fail, words.Postpone, words.Cancelled, words.Suspended)
}


class Kept(dict[str, list[Report]]):
    """Reports by identity. Files with an identity in `wait` are not removed."""

    def __init__(self) -> None:
        super().__init__()
        self.wait: set[str] = set()


class Spool:
    """One file per process, in a private directory that the workers of a host share."""

    def __init__(self, directory: Path) -> None:
        self._directory = private_directory(directory)
        self._path = directory / f"{os.getpid()}-{uuid4().hex[:12]}.reports"
        lock = lock_file(self._path)
        assert lock is not None, f"{self._path} belongs to this process"
        self._lock = lock

    def write(self, reports: Sequence[Report], identity: str = "") -> None:
        """Replace the stored reports atomically. Their source needs `identity` to deliver them later."""
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
        """Release the lock. Stored reports are left for the next process."""
        if not self._path.exists():
            self._path.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.close()

    @contextmanager
    def left_behind(self) -> Iterator[Kept]:
        """Yield the reports of ended processes by identity. Remove their files if the block succeeds."""
        found, identities = Kept(), dict[Path, set[str]]()
        # Include files with a lock but no reports: the process was killed, or another one delivered them.
        paths = {path.with_suffix(".reports") for path in self._directory.glob("*.*")}
        locked = [(path, lock) for path in sorted(paths) if (lock := lock_file(path)) is not None]
        try:
            for path, _ in locked:
                for identity, report in _read(path):
                    found.setdefault(identity, []).append(report)
                    identities.setdefault(path, set()).add(identity)
            yield found
            for path in [path for path, _ in locked if not found.wait & identities.get(path, set())]:
                for suffix in (".new", ".reports", ".lock"):
                    path.with_suffix(suffix).unlink(missing_ok=True)
        finally:
            for _, lock in locked:
                lock.close()


def shared_reports(shared: Path) -> dict[Path, list[UUID]]:
    """Return the files of version 0.1, which all fleets shared, with the tasks of their reports."""
    return {path: [report.task.id for _, report in _read(path)] for path in sorted(shared.glob("*.reports"))}


def take_over(path: Path, folder: Path) -> None:
    """Move such a file to the directory of its fleet, unless its process is alive."""
    if (lock := lock_file(path)) is None:
        return
    with lock:
        if path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.rename(folder / path.name)
        path.with_suffix(".lock").unlink(missing_ok=True)


def seal(outcome: words.Outcome) -> words.Outcome:
    """Encrypt the payload of an outcome, if there is a key."""
    codec = current()
    match outcome:
        case words.Complete(result) if result is not None:
            return words.Complete(codec.json(result))
        case words.Fail(error):
            return outcome._replace(error=codec.error(error) or "")
        case words.Postpone(seconds, reason, clear) if not clear:
            return words.Postpone(seconds, codec.text(reason) or "")
        case words.Suspended(waits):
            return words.Suspended(sealed_waits(waits))
    return outcome


def _pack(report: Report, identity: str) -> dict[str, Any]:
    sealed = seal(report.outcome)
    outcome = sealed._asdict()
    outcome.pop("clear", None)  # an older worker that takes over the file does not know it
    if isinstance(sealed, words.Complete) and sealed.result is not None:
        outcome["result"] = sealed.result.decode()
    task = report.task._asdict() | {"params": {}, "timeout": None}
    return {
        "identity": identity,
        "task": task,
        "kind": type(report.outcome).__name__,
        "outcome": outcome,
        "seconds": report.seconds,
    }


def _read(path: Path) -> Iterator[tuple[str, Report]]:
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            kept = orjson.loads(line)
            yield kept.get("identity", ""), _unpack(kept)
        except (ValueError, KeyError, TypeError, AttributeError):
            log.error("skipped an unreadable report", file=str(path))


def _unpack(kept: dict[str, Any]) -> Report:
    outcome = kept["outcome"]
    if kept["kind"] == "Complete" and outcome["result"] is not None:
        outcome["result"] = outcome["result"].encode()
    return Report(claimed_from_json(kept["task"]), OUTCOMES[kept["kind"]](**outcome), kept["seconds"])


def claimed_from_json(fields: dict[str, Any]) -> Claimed:
    """Return the task that was encoded as JSON."""
    for name in ("created_at", "ready_at", "started_at", "deadline"):
        fields[name] = fields[name] and datetime.fromisoformat(fields[name])
    for name in ("id", "run_id"):
        fields[name] = fields[name] and UUID(fields[name])
    return Claimed(**fields)
