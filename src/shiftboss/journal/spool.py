"""Findings that the database could not take are kept on disk and written later.

A model was asked and paid: its answer must not be lost because PostgreSQL restarts at the wrong moment.
Writing is idempotent by input hash, so a finding that reached the table before the connection broke is not
written twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import structlog

from shiftboss.model.errors import DatabaseError, DatabaseUnavailable

Rows = Sequence[dict[str, Any]]
Write = Callable[[Rows], Awaitable[int]]
log = structlog.get_logger()


def _rows(path: Path) -> Rows:
    """The findings of one file; one that can not be read is set aside, so that it hinders nobody."""
    try:
        rows: Rows = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        _set_aside(path, str(error))
        return []
    return rows


def _set_aside(path: Path, reason: str) -> None:
    """Nothing is lost: what it held is found anew by the task that found it."""
    path.rename(path.with_suffix(".unreadable"))
    log.error("kept journal findings can not be written and are left out", path=str(path), reason=reason)


class Spool:
    """A directory of waiting findings; without one, findings are only kept in memory."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory

    async def store(self, write: Write, rows: Rows) -> int:
        """Write the rows. If the database is away they stay on disk, and the error goes on to the caller."""
        try:
            return await write(rows)
        except DatabaseUnavailable:
            try:
                self._keep(rows)
            except OSError as error:  # the task comes again anyway, and makes them anew
                log.error("journal findings could not be kept on disk", reason=str(error))
            raise

    async def flush(self, write: Write) -> int:
        """Write what waits; what another process takes at the same time is harmless."""
        written = 0
        for path in self.waiting():
            with contextlib.suppress(FileNotFoundError):
                try:
                    written += await write(_rows(path))
                    path.unlink(missing_ok=True)
                except DatabaseError as error:
                    if not error.refused:
                        raise
                    _set_aside(path, error.message)  # or it would stop every task that looks here first
        return written

    def waiting(self) -> list[Path]:
        return sorted(self._directory.glob("*.json")) if self._directory else []

    def _keep(self, rows: Rows) -> None:
        if self._directory is None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{uuid4().hex}.json"
        with path.with_suffix(".part").open("wb") as file:
            file.write(orjson.dumps(list(rows)))
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".part").rename(path)
        log.warning("journal findings kept on disk", path=str(path), findings=len(rows))
