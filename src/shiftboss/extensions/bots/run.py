"""The run that a bot receives: its city and category, counters, progress and checkpoint."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from shiftboss.extensions.runs.store import Runs
from shiftboss.log import get_logger
from shiftboss.model.errors import ShiftbossError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.extensions.bots.catalog import Catalog, Category, City
    from shiftboss.model.settings import Settings

log = get_logger(__name__)

REPORT_EVERY = 0.5


class RunLost(ShiftbossError):
    """The run was cancelled, or its lease has expired."""


class Tracker(Protocol):
    """Receives the progress of a run."""

    async def report(
        self, percent: int, counters: dict[str, int], checkpoint: dict[str, Any] | None, message: str | None
    ) -> None: ...


class Tracked:
    """Reports to `worker_runs` under the lease of the task."""

    def __init__(self, db: Database, run_id: UUID, lease: int) -> None:
        self._db, self._run_id, self._lease = db, run_id, lease

    async def report(
        self, percent: int, counters: dict[str, int], checkpoint: dict[str, Any] | None, message: str | None
    ) -> None:
        held = await self._db.family(Runs).report_run(
            self._run_id, self._lease, percent, counters, checkpoint, message
        )
        if not held:
            raise RunLost(f"run {self._run_id} is no longer held by this process")


class Run:
    """The first argument of a bot."""

    def __init__(
        self,
        *,
        bot: str,
        db: Database,
        settings: Settings,
        catalog: Catalog,
        tracker: Tracker,
        city: City | None = None,
        category: Category | None = None,
        checkpoint: dict[str, Any] | None = None,
        counters: dict[str, int] | None = None,
        id: UUID | None = None,
    ) -> None:
        self.bot, self.id = bot, id
        self.db, self.settings, self.catalog = db, settings, catalog
        self.city, self.category = city, category
        self.checkpoint: dict[str, Any] = dict(checkpoint or {})
        """Where the previous run or attempt stopped. Set it before calling `step`."""
        self.counters: Counter[str] = Counter(counters or {})
        self._tracker = tracker
        self._reported = 0.0
        self._percent = 0
        self._sent: dict[str, int] = {}
        self._reporting = asyncio.Lock()

    @property
    def cities(self) -> list[City]:
        """The city of the run, or all cities."""
        return [self.city] if self.city else list(self.catalog.cities.values())

    @property
    def categories(self) -> list[Category]:
        """The category of the run, or all categories."""
        return [self.category] if self.category else list(self.catalog.categories.values())

    def count(self, name: str, n: int = 1) -> None:
        self.counters[name] += n

    async def step(self, done: int, total: int, message: str | None = None) -> None:
        """Record progress. Call it after each piece of work; it reports at most twice a second."""
        now = time.monotonic()
        if done >= total or now - self._reported >= REPORT_EVERY:
            self._reported = now
            await self.flush(100 * done // max(total, 1), message)

    async def flush(self, percent: int, message: str | None = None) -> None:
        """Report now. Raises `RunLost` if this process no longer holds the run."""
        self._percent = percent
        await self._report(percent, self.checkpoint or None, message)

    async def _report(self, percent: int, checkpoint: dict[str, Any] | None, message: str | None) -> None:
        async with self._reporting:  # an older report must not overwrite a newer one
            counters = dict(self.counters)
            await self._tracker.report(percent, counters, checkpoint, message)
            self._sent = counters

    @asynccontextmanager
    async def keeping_counters(self) -> AsyncIterator[None]:
        """Report changed counters while the bot works, even if it calls neither `step` nor `flush`.

        The checkpoint is not reported: the bot may set it before the work is done.
        """
        ticker = asyncio.create_task(self._keep_counters())
        try:
            yield
        finally:
            ticker.cancel()
            await asyncio.wait([ticker])

    async def _keep_counters(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY or 0.5)
            if self.counters != self._sent:
                try:
                    await self._report(self._percent, None, None)
                except ShiftbossError as error:  # the next step of the bot raises it
                    log.debug("cannot report counters", reason=error.message)
