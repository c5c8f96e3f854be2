"""The election of the leader, the one process that performs the duties of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from shiftboss.db import Database
from shiftboss.db.lease import Lease
from shiftboss.lifecycle import Service, sleep, ticks
from shiftboss.lifecycle.processes import known_dead, own_name
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, ShiftbossError

log = get_logger(__name__)

LEASE = "leader"
ELECTED = "leader.elected"


class Duty(NamedTuple):
    """Something that only the leader does, every `every` seconds."""

    name: str
    every: float
    call: Callable[[], Awaitable[object]]


def leadership(db: Database, seconds: float, name: str | None = None) -> Lease:
    """Return the lease of the leader. The event of an election names the new holder."""
    who = own_name()
    holder = {"name": name or f"{who['host']}:{who['pid']}"} | who
    return Lease(db, LEASE, seconds, holder, event=ELECTED, dead=known_dead)


class Leader(Service):
    """Stands for election. Once elected, performs its duties until it stops or loses the lease.

    Duties write through `Database.under(lease)`, so late writes of a former leader have no effect. The leader
    checks the lease itself only to avoid useless attempts.
    """

    def __init__(self, lease: Lease, duties: Sequence[Duty], *, every: float = 1.0) -> None:
        """`every` is the number of seconds between two attempts to be elected."""
        super().__init__()
        self._lease, self._duties, self._every = lease, list(duties), every
        self._leading = False

    @property
    def leading(self) -> bool:
        """Whether this process leads the fleet."""
        return self._leading and self._lease.held

    async def run(self) -> None:
        self.ready()
        try:
            async for _ in ticks(self._every, self.stopping):
                if await self._elected():
                    await self._lead()
        finally:
            await self._lease.release()

    async def _elected(self) -> bool:
        try:
            return await self._lease.acquire()
        except DatabaseError as error:
            log.warning("cannot stand for election", reason=error.message)
            return False

    async def _lead(self) -> None:
        log.info("became leader")
        self._leading = True
        over = asyncio.Event()
        tasks = [asyncio.create_task(self._do(duty, over), name=duty.name) for duty in self._duties]
        try:
            while not await sleep(3600, self._lease.lost, self.stopping):
                pass
        finally:
            self._leading = False
            over.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._lease.release()  # a successor need not wait for the lease to expire
            log.info("no longer leader")

    async def _do(self, duty: Duty, over: asyncio.Event) -> None:
        async for _ in ticks(duty.every, over):
            if not self._lease.held:  # the database is away, or another process leads
                continue
            try:
                await duty.call()
            except ShiftbossError as error:
                log.warning("duty not performed", duty=duty.name, reason=error.message)
            except Exception:
                log.exception("duty failed", duty=duty.name)
