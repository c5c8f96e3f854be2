"""Where tasks come from and reports go to. The runtime is the same for every source."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from shiftboss.db.listen import MISSED, listen
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, Postpone, Report
from shiftboss.model.worker import Member, Orders

if TYPE_CHECKING:
    from shiftboss.db import Database

Held = Sequence[tuple[UUID, int]]


class Source(Protocol):
    """What the runtime needs of the outside."""

    orders: asyncio.Event
    """Set when the next beat should not wait: there is an order for this worker."""
    arrived: asyncio.Event
    """Set when there may be something to claim; cleared before each claim."""
    spool: str
    """The folder for reports that wait, within the host's: those of another fleet would be stale here."""

    @property
    def identity(self) -> str:
        """What a later process must show to deliver reports of this one; kept with them."""
        ...

    async def join(self, member: Member) -> None: ...

    async def claim(self, limit: int) -> list[Claimed]:
        """Up to `limit` tasks, at once: an empty list when there are none."""
        ...

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        """Deliver outcomes; the ids of those whose lease was stale."""
        ...

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        """`report`, for a process that is gone. Works without having joined."""
        ...

    async def progress(self, held: Held, percents: Sequence[int], messages: Sequence[str | None]) -> None: ...

    async def beat(
        self, leases: Sequence[int], usage: dict[str, Any], stats: list[dict[str, Any]]
    ) -> Orders: ...

    async def leave(self) -> None: ...


class Seen(Protocol):
    """A task that was taken: from which lane, and since when it was ready."""

    @property
    def lane(self) -> int: ...

    @property
    def ready_at(self) -> datetime: ...


class Marks:
    """Up to where each lane was seen empty: a claim starts there, past dead index entries.

    Late commits and retried tasks lie before a mark: a full look finds them. It is taken when the queue runs
    dry and every so often, but never for more than a twentieth of the time.
    """

    EVERY = 1.0

    def __init__(self) -> None:
        self._marks: dict[int, datetime] = {}
        self._next_full = 0.0
        self._cost = 0.0
        self._dry = True

    def take(self) -> dict[int, datetime] | None:
        """The marks to claim with; None: look from the front."""
        now = time.monotonic()
        wait = self._cost * 20 if self._dry else max(self.EVERY, self._cost * 20)
        if not self._marks or now >= self._next_full + wait:
            return None
        return self._marks

    def learn(self, claimed: Sequence[Seen], limit: int, used: bool, seconds: float) -> None:
        self._dry = len(claimed) < limit
        if not used:
            self._next_full, self._cost = time.monotonic(), seconds
        for task in claimed:
            mark = self._marks.get(task.lane)
            if mark is None or task.ready_at > mark:
                self._marks[task.lane] = task.ready_at


class DatabaseSource:
    """Straight from PostgreSQL: claims by SQL, wakes by NOTIFY, polling behind it."""

    spool = ""
    identity = ""  # a lease is all that a report needs

    def __init__(self, db: Database, *, listen_url: str | None = None, listening: bool = True) -> None:
        self.orders = asyncio.Event()
        self.arrived = asyncio.Event()
        self._db = db
        self._listen_url = listen_url or db.url
        self._listening = listening
        self._marks = Marks()
        self._ear: asyncio.Task[None] | None = None
        self._claiming = False
        self._id = ""
        self._incarnation: UUID | None = None
        self._queues: frozenset[str] | None = None

    async def join(self, member: Member) -> None:
        self._id, self._incarnation = member.id, member.incarnation
        self._queues = None if member.queues is None else frozenset(member.queues)
        await self._db.workers.register(member)
        if self._listening and self._ear is None:
            self._ear = asyncio.create_task(self._listen(), name="ear")

    async def _listen(self) -> None:
        async for notice in listen(self._listen_url, ["shiftboss_tasks", "shiftboss_orders"]):
            if notice.channel == "shiftboss_orders":
                if notice.payload == self._id:
                    self.orders.set()
            elif (
                notice is MISSED
                or self._queues is None
                or notice.payload in self._queues
                or notice.payload == "*"
            ):
                self.arrived.set()

    async def claim(self, limit: int) -> list[Claimed]:
        marks = self._marks.take()
        began = time.monotonic()
        self._claiming = True
        try:
            claimed = await self._db.tasks.claim(self._id, limit, marks, incarnation=self._incarnation)
        finally:
            self._claiming = False
        self._marks.learn(claimed, limit, marks is not None, time.monotonic() - began)
        return claimed

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        tasks, stale = self._db.tasks, []
        by_kind: dict[type, list[Report]] = defaultdict(list)
        for report in reports:
            by_kind[type(report.outcome)].append(report)
        if some := by_kind.get(Complete):
            results = [r.outcome.result for r in some if isinstance(r.outcome, Complete)]
            stale += await tasks.complete(_held(some), results)
        if some := by_kind.get(Fail):
            fails = [r.outcome for r in some if isinstance(r.outcome, Fail)]
            stale += await tasks.fail(
                _held(some), [f.error for f in fails], [f.kind for f in fails], [f.retry for f in fails]
            )
        if some := by_kind.get(Postpone):
            later = [r.outcome for r in some if isinstance(r.outcome, Postpone)]
            delays = [timedelta(seconds=p.seconds) for p in later]
            stale += await tasks.defer(_held(some), delays, [p.reason for p in later])
        if some := by_kind.get(Cancelled):
            stale += await tasks.cancelled(_held(some))
        return stale

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        return await DatabaseSource.report(self, reports)

    async def progress(self, held: Held, percents: Sequence[int], messages: Sequence[str | None]) -> None:
        await self._db.tasks.progress(held, percents, messages)

    async def beat(self, leases: Sequence[int], usage: dict[str, Any], stats: list[dict[str, Any]]) -> Orders:
        self.orders.clear()
        # What a claim brings may be ours without being among them: then nothing is said of leases, for those
        # that a worker does not know are taken from it.
        held = None if self._claiming else leases
        return await self._db.workers.beat(self._id, held, usage, stats or None, self._incarnation)

    async def leave(self) -> None:
        if self._ear is not None:
            self._ear.cancel()
            with suppress(asyncio.CancelledError):
                await self._ear
            self._ear = None
        await self._db.workers.leave(self._id, incarnation=self._incarnation)


def _held(reports: Sequence[Report]) -> list[tuple[UUID, int]]:
    return [(report.task.id, report.task.lease) for report in reports]
