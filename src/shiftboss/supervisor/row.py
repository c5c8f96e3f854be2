"""The row of a slot in `health`, as its supervisor reads and writes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from shiftboss.db import Database, Row
from shiftboss.lifecycle import Backoff
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError
from shiftboss.model.slot import SlotStatus

log = get_logger(__name__)
T = TypeVar("T")

LAST_TRIES = 3


class HealthRow:
    """Reads and writes one row, waiting for the database while it is away.

    Once `leaving` returns True, a write is tried only a few more times.
    """

    def __init__(
        self, db: Database, host: str, queue: str, component: str, leaving: Callable[[], bool]
    ) -> None:
        self._db, self._host, self._queue = db, host, queue
        self._leaving = leaving
        self.component = component
        self.written = time.monotonic()
        """When the last call ended. A survey that began earlier may be out of date."""
        self.former: str | None = None
        """Identifies the row's history, which a reopened row takes over."""

    async def read(self) -> Row | None:
        rows = await self.wait_for(lambda: self._db.health.survey(self._host))
        row = next((row for row in rows or () if row["component"] == self.component), None)
        if row is not None:
            self.former = row["former"]
        return row

    async def reopen(self) -> None:
        """Create the row again, with its history, if the worker removed it."""
        await self.wait_for(self._reopen)

    async def set_starting(self) -> None:
        await self.wait_for(lambda: self._db.health.update_status(self.component, SlotStatus.STARTING))
        await self.wait_for(lambda: self._db.health.take_restart_order(self.component))

    async def set_failed(self, reason: str) -> None:
        await self.wait_for(
            lambda: self._db.health.update_status(self.component, SlotStatus.FAILED, reason=reason)
        )

    async def set_process(self, pid: int, identity: str | None, ended: asyncio.Future[Any]) -> None:
        await self.wait_for(lambda: self._db.health.name_process(self.component, pid, identity), unless=ended)

    async def mark_crashed(self, reason: str, outcome: str = "crashed", suspects: Sequence[int] = ()) -> None:
        """Record a crash, even if the worker removed the row because another process stopped it."""

        async def mark() -> None:
            await self._reopen()
            await self._db.health.mark_crashed(self.component, reason, outcome=outcome, suspects=suspects)

        await self.wait_for(mark)

    async def count_restart(self) -> None:
        row = await self.read()
        before = None if row is None else row["restart_count"]
        await self.wait_for(lambda: self._db.health.increment_restart_count(self.component, before))

    async def remove(self) -> None:
        await self.wait_for(lambda: self._db.health.remove_worker(self.component))

    async def _reopen(self) -> None:
        if await self._db.health.get_worker(self.component) is None:
            self.component = await self._db.health.open_slot(self._host, self._queue, self.former)

    async def wait_for(
        self, call: Callable[[], Awaitable[T]], unless: asyncio.Future[Any] | None = None
    ) -> T | None:
        """Repeat a database call until it succeeds. Return None if `unless` is done first."""
        backoff = Backoff(maximum=5.0)
        while True:
            try:
                return await call()
            except DatabaseError as error:
                if error.refused or error.about_values:
                    raise
                log.warning("the database is away", component=self.component, reason=error.message)
                if unless is not None and unless.done():
                    return None
                if self._leaving() and backoff.failures >= LAST_TRIES:
                    raise
                await asyncio.sleep(backoff.next())
            finally:
                self.written = time.monotonic()
