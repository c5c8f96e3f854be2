"""The tracker: counters of this process for its row in `ai.vectorizer_worker_process`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from shiftboss import __version__
from shiftboss.db.tracking import Availability, Tracking
from shiftboss.log import get_logger
from shiftboss.model.codec import current as codec
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import Complete, Fail, Report, storable

if TYPE_CHECKING:
    from shiftboss.db import Database

log = get_logger(__name__)
STRIKES: Final = 3
LAST_BEAT_SECONDS: Final = 5.0
LONGEST_MESSAGE: Final = 2000
# Task types whose handlers count parts of tasks themselves. The handlers add them here.
COUNT_THEMSELVES: Final[set[str]] = set()


_current: Tracker | None = None


def current() -> Tracker | None:
    """Return the tracker of this process, for handlers that count parts of tasks."""
    return _current


@dataclass(slots=True)
class Totals:
    """Totals since this process registered. Each beat sends the totals, so nothing is counted twice."""

    successes: int = 0
    errors: int = 0
    message: str | None = None


class Tracker:
    """Totals for the row of this process; its heartbeat sends them. Errors here never stop a worker."""

    def __init__(self, db: Database, interval: float = 10.0, version: str = __version__) -> None:
        self._tracking: Tracking = db.tracking
        self._workers = db.workers
        self._interval = interval
        self._version = version
        self._counts = Totals()
        self._sent = self._confirmed = Totals()
        self._strikes = 0
        self.id: UUID | None = None

    @property
    def beating(self) -> bool:
        return self.id is not None and self._strikes < STRIKES

    def succeeded(self, count: int = 1) -> None:
        self._counts.successes += count

    def failed(self, message: str, count: int = 1) -> None:
        self._counts.errors += count
        self._counts.message = storable(message[:LONGEST_MESSAGE])

    async def start(self) -> UUID | None:
        """Register this process and return its id, or None if tracking is unavailable."""
        global _current
        _current = self
        try:
            if _usable(await self._tracking.available()):
                self.id = await self._tracking.worker_start(self._version, timedelta(seconds=self._interval))
        except DatabaseError as error:
            log.warning("worker tracking is off: registration failed", error=str(error), hint=error.hint)
        return self.id

    async def stop(self) -> None:
        """Send counts that the last heartbeat did not include, unless tracking was turned off."""
        global _current
        _current = None if _current is self else _current
        if self.beating and self._counts != self._confirmed:
            with suppress(TimeoutError, DatabaseError):
                async with asyncio.timeout(LAST_BEAT_SECONDS):
                    await self._workers.keep_process(None, self.row())

    def row(self) -> dict[str, Any]:
        """Return the row for `shiftboss.keep_process`, with all that is needed to recreate a deleted row."""
        known = {"id": str(self.id), "version": self._version, "interval": f"{self._interval} s"}
        self._sent = replace(self._counts)
        return known | asdict(self._sent) | {"message": codec().error(self._sent.message)}

    def handle_result(self, trouble: dict[str, Any]) -> None:
        """Handle the result of a beat."""
        if "message" in trouble:
            log.warning("tracking beat failed", error=trouble["message"])
            self.strike()
            return
        self._strikes, self._confirmed = 0, self._sent
        if "id" in trouble:
            self.id = UUID(trouble["id"])
            log.warning("the row of this process was deleted, registered again", id=trouble["id"])

    def strike(self) -> None:
        """Count a failure. After several in a row, tracking is turned off."""
        self._strikes += 1
        if self._strikes == STRIKES:
            log.error("worker tracking is off: too many beats failed in a row", strikes=STRIKES)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def note(self, report: Report) -> None:
        """Count a task that has ended, unless its type is in COUNT_THEMSELVES."""
        if report.task.task_type in COUNT_THEMSELVES:
            return
        outcome = report.outcome
        if isinstance(outcome, Complete):
            self.succeeded()
        elif isinstance(outcome, Fail):
            self.failed(outcome.error)

    async def progress(self, vectorizer_id: int, successes: int, error: str | None = None) -> None:
        """Report one batch of a vectorizer, and count it for this process."""
        if error is None:
            self.succeeded(successes)
        else:
            self.failed(error)
        if self.id is None:
            return
        try:
            await self._tracking.worker_progress(
                self.id, vectorizer_id, successes, error and codec().error(storable(error[:LONGEST_MESSAGE]))
            )
        except DatabaseError as trouble:
            log.warning("cannot report progress", vectorizer=vectorizer_id, error=str(trouble))


def _usable(found: Availability) -> bool:
    if found is Availability.HIDDEN:
        log.error(
            "worker tracking is off: this role has no access to its tables",
            hint="GRANT USAGE ON SCHEMA ai and SELECT, INSERT, UPDATE ON its vectorizer_worker_* tables",
        )
    elif found is Availability.ABSENT:
        log.warning(
            "worker tracking is off: ai.vectorizer_worker_process does not exist", hint="shiftboss db migrate"
        )
    return found is Availability.AVAILABLE
