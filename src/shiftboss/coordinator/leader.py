"""The leader: of all processes that would do the fleet's duties, the one that does them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog

from shiftboss.db import Database
from shiftboss.db.lock import NamedLock
from shiftboss.lifecycle import Service, sleep, ticks
from shiftboss.model.errors import DatabaseError, ShiftbossError

log = structlog.get_logger()

LOCK = "shiftboss leader"


class Duty(NamedTuple):
    """Something to do every so often, by the leader only."""

    name: str
    every: float
    call: Callable[[], Awaitable[object]]


class Leader(Service):
    """Runs for office; in office it does its duties. Whoever dies loses the office at once.

    The office is an advisory lock on a connection of its own. Before each duty it is asked if it still lives,
    so a leader that was cut off does nothing more; and a new one waits until the old one must have noticed.
    """

    def __init__(
        self, db: Database, duties: Sequence[Duty], *, every: float = 1.0, direct_url: str | None = None
    ) -> None:
        super().__init__()
        self._db, self._duties, self._every = db, list(duties), every
        self._lock = NamedLock(direct_url or db.url, LOCK)
        self._leading = False

    @property
    def leading(self) -> bool:
        """Whether this one is in office."""
        return self._leading

    async def run(self) -> None:
        self.ready()
        try:
            async for _ in ticks(self._every, self.stopping):
                if await self._elected() and not await sleep(2 * self._every, self.stopping):
                    await self._lead()
        finally:
            await self._lock.release()

    async def _elected(self) -> bool:
        try:
            return await self._lock.acquire()
        except DatabaseError as error:
            log.warning("can not stand for leader", reason=error.message)
            return False

    async def _lead(self) -> None:
        self._leading = True
        log.info("this process is the leader now")
        over = asyncio.Event()
        tasks = [asyncio.create_task(self._do(duty, over), name=duty.name) for duty in self._duties]
        try:
            with suppress(DatabaseError):
                await self._db.events.note("leader.elected")
            while await self._lock.held() and not self.stopping.is_set():
                await sleep(self._every, self.stopping)
        finally:
            # The lock is given up only when no duty is under way any more: two leaders never act at once.
            self._leading = False
            over.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._lock.release()
            log.info("this process is no longer the leader")

    async def _do(self, duty: Duty, over: asyncio.Event) -> None:
        async for _ in ticks(duty.every, over):
            if not await self._lock.held():
                return
            try:
                await duty.call()
            except ShiftbossError as error:
                log.warning("a duty could not be done", duty=duty.name, reason=error.message)
            except Exception:
                log.exception("a duty failed", duty=duty.name)
