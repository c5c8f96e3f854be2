"""The tracker: this process's incarnation in `ai.vectorizer_worker_process`, kept beating."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID

import structlog

from shiftboss import __version__
from shiftboss.db.tracking import Availability, Tracking
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import Complete, Fail, storable
from shiftboss.worker.hooks import Ended, Event

if TYPE_CHECKING:
    from shiftboss.db import Database

log = structlog.get_logger()
STRIKES: Final = 3
LAST_BEAT_SECONDS: Final = 5.0
LONGEST_MESSAGE: Final = 2000
COUNT_THEMSELVES: Final = frozenset({"vectorizer.run"})


_current: Tracker | None = None


def current() -> Tracker | None:
    """This process's tracker, for work that counts more finely than by tasks."""
    return _current


@dataclass(slots=True)
class Counts:
    """What has happened since the last beat that landed."""

    successes: int = 0
    errors: int = 0
    message: str | None = None

    def put_back(self, earlier: Counts) -> None:
        """Add what a failed beat could not deliver; the newer message stands."""
        self.successes += earlier.successes
        self.errors += earlier.errors
        self.message = self.message or earlier.message


class Tracker:
    """Register, beat every `interval` seconds and once at the end. Its trouble never stops the worker."""

    def __init__(self, db: Database, interval: float = 10.0, version: str = __version__) -> None:
        self._tracking: Tracking = db.tracking
        self._interval = interval
        self._version = version
        self._counts = Counts()
        self._loop: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self.id: UUID | None = None

    @property
    def beating(self) -> bool:
        return self._loop is not None and not self._loop.done()

    def succeeded(self, count: int = 1) -> None:
        self._counts.successes += count

    def failed(self, message: str, count: int = 1) -> None:
        self._counts.errors += count
        self._counts.message = storable(message[:LONGEST_MESSAGE])

    async def start(self) -> UUID | None:
        """This process's id, or None where tracking can not be used; the log says why."""
        global _current
        _current = self
        try:
            if not _usable(await self._tracking.available()):
                return None
            self.id = await self._tracking.worker_start(self._version, timedelta(seconds=self._interval))
        except DatabaseError as error:
            log.warning("worker tracking is off: registration failed", error=str(error), hint=error.hint)
            return None
        self._loop = asyncio.create_task(self._beat_on(), name="tracker")
        return self.id

    async def stop(self) -> None:
        """One last beat with what is left, unless beating has been given up."""
        global _current
        _current = None if _current is self else _current
        if self._loop is None:
            return
        self._stopping.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._loop, LAST_BEAT_SECONDS)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def note(self, event: Event) -> None:
        """Listen to a worker: count the tasks that end, but for those that count for themselves."""
        if not isinstance(event, Ended) or event.report.task.task_type in COUNT_THEMSELVES:
            return
        outcome = event.report.outcome
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
                self.id, vectorizer_id, successes, error and storable(error[:LONGEST_MESSAGE])
            )
        except DatabaseError as trouble:
            log.warning("progress was not reported", vectorizer=vectorizer_id, error=str(trouble))

    async def _beat_on(self) -> None:
        strikes = 0
        while strikes < STRIKES:
            # A beat is never cut short by the end: nobody could say whether its counts had landed.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval)
            strikes = 0 if await self._beat() else strikes + 1
            if self._stopping.is_set():
                return
        log.error("worker tracking is off: too many beats failed in a row", strikes=strikes)

    async def _beat(self) -> bool:
        assert self.id is not None
        sent, self._counts = self._counts, Counts()
        try:
            await self._tracking.worker_heartbeat(self.id, sent.successes, sent.errors, sent.message)
        except DatabaseError as error:
            self._counts.put_back(sent)
            log.warning("a tracking beat failed", error=str(error))
            return False
        except BaseException:
            self._counts.put_back(sent)
            raise
        return True


def _usable(found: Availability) -> bool:
    if found is Availability.HIDDEN:
        log.error(
            "worker tracking is off: its tables are there, but this role may not see them",
            hint="GRANT USAGE ON SCHEMA ai and SELECT, INSERT, UPDATE ON its vectorizer_worker_* tables",
        )
    elif found is Availability.ABSENT:
        log.warning("worker tracking is off: ai.vectorizer_worker_process does not exist", hint="migrate")
    return found is Availability.AVAILABLE
