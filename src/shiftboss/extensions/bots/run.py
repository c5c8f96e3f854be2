"""The run that a bot receives: its city and category, counters, progress and checkpoint."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from shiftboss.db import Database
from shiftboss.extensions.bots.catalog import Category, City
from shiftboss.extensions.bots.order import RunOrder
from shiftboss.extensions.bots.registry import NoParams
from shiftboss.log import get_logger
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.settings import Settings

log = get_logger(__name__)

REPORT_EVERY = 0.5

Report = Callable[[int, dict[str, int], dict[str, Any] | None, str | None], Awaitable[None]]
"""Receives the percentage, the counters, the checkpoint and a message."""


class RunLost(ShiftbossError):
    """The run was cancelled, or its lease has expired."""


class Run:
    """The first argument of a bot."""

    def __init__(
        self,
        order: RunOrder,
        db: Database,
        settings: Settings,
        report: Report,
        *,
        kept: Mapping[str, Any] | None = None,
        id: UUID | None = None,
    ) -> None:
        """Prepare a run, with the checkpoint and counters `kept` by a previous attempt."""
        self.order, self.bot, self.id = order, order.bot.name, id
        self.db, self.settings, self.catalog = db, settings, order.catalog
        self.city, self.category = order.city, order.category
        kept = kept or {}
        self.checkpoint: dict[str, Any] = dict(kept.get("checkpoint") or {})
        """Where the previous run or attempt stopped. Set it before calling `step`."""
        self.counters: Counter[str] = Counter(kept.get("counters") or {})
        self._report_to = report
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

    async def carry_out(self) -> dict[str, int]:
        """Execute the bot and return its counters, which are also reported if it fails."""
        bot = self.order.bot
        await self.flush(0)
        ticker = asyncio.create_task(self._keep_counters())
        try:
            await (bot.work(self) if bot.params is NoParams else bot.work(self, self.order.params))
        finally:
            ticker.cancel()
            await asyncio.wait([ticker])
        await self.flush(99)
        return dict(self.counters)

    async def _report(self, percent: int, checkpoint: dict[str, Any] | None, message: str | None) -> None:
        async with self._reporting:  # an older report must not overwrite a newer one
            counters = dict(self.counters)
            await self._report_to(percent, counters, checkpoint, message)
            self._sent = counters

    async def _keep_counters(self) -> None:
        """Report changed counters while the bot works, even if it calls neither `step` nor `flush`.

        The checkpoint is not reported: the bot may set it before the work is done.
        """
        while True:
            await asyncio.sleep(REPORT_EVERY or 0.5)
            if self.counters != self._sent:
                try:
                    await self._report(self._percent, None, None)
                except ShiftbossError as error:  # the next step of the bot raises it
                    log.debug("cannot report counters", reason=error.message)
