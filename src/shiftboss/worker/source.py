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
from shiftboss.model.errors import TasksLocked
from shiftboss.model.log import LogLine
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, Postpone, Report, Suspended
from shiftboss.model.worker import Member, Orders
from shiftboss.worker.sleeper import Sleeper

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.presence import Presence
    from shiftboss.worker.steps import StepLink

Held = Sequence[tuple[UUID, int]]


class Source(Protocol):
    """What the runtime needs of the outside."""

    orders: asyncio.Event
    """Set when the next beat should not wait: there is an order for this worker."""
    arrived: asyncio.Event
    """Set when there may be something to claim; cleared before each claim."""
    steps: StepLink | None
    """What steps of tasks are stored over; None: the worker's own database."""
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
        """Deliver outcomes; the ids of those whose lease was stale.

        Raises TasksLocked when the rows of some are locked; the others were delivered.
        """
        ...

    def report_apart(self, reports: Sequence[Report], seconds: float) -> None:
        """`report` from a thread, over a connection of its own: the event loop is blocked."""
        ...

    def hold(self) -> list[Claimed]:
        """Ask for nothing more until the next claim; what was delivered already and is to be given back."""
        ...

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        """`report`, for a process that is gone. Works without having joined."""
        ...

    async def progress(self, held: Held, percents: Sequence[int], messages: Sequence[str | None]) -> None: ...

    async def logs(self, lines: Sequence[LogLine], ended: Sequence[UUID]) -> None:
        """Store what handlers logged; `ended` names tasks whose attempt has logged its last line."""
        ...

    async def beat(
        self, leases: Sequence[int], usage: dict[str, Any], stats: list[dict[str, Any]]
    ) -> Orders: ...

    async def leave(self) -> None: ...


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

    def due(self) -> float:
        """How long until a full look is allowed after one that found nothing with marks."""
        return max(self._next_full + self._cost * 20 - time.monotonic(), 0.0)

    def learn(self, claimed: Sequence[Claimed], limit: int, used: bool, seconds: float) -> None:
        self._dry = len(claimed) < limit
        if not used:
            self._next_full, self._cost = time.monotonic(), seconds
        for task in claimed:
            mark = self._marks.get(task.lane)
            if mark is None or task.ready_at > mark:
                self._marks[task.lane] = task.ready_at


class DatabaseSource:
    """Straight from PostgreSQL: claims by SQL, is woken by NOTIFY while it sleeps, and polls behind that."""

    identity = ""  # a lease is all that a report needs
    steps: StepLink | None = None

    def __init__(
        self, db: Database, *, listen_url: str | None = None, listening: bool = True, spool: str = ""
    ) -> None:
        self.spool = spool
        self.orders = asyncio.Event()
        self.arrived = asyncio.Event()
        self._db = db
        self._listen_url = listen_url or db.url
        self._marks = Marks()
        self._sleeper = Sleeper(db, self.arrived.set) if listening else None
        self._ear: asyncio.Task[None] | None = None
        self._claiming = False
        self.presence: Presence | None = None
        """The rows of this process, which the beat keeps as well."""
        self._id = ""
        self._incarnation: UUID | None = None

    async def join(self, member: Member) -> None:
        self._id, self._incarnation = member.id, member.incarnation
        await self._db.workers.register(member)
        if self._sleeper is not None and self._ear is None:
            self._ear = asyncio.create_task(self._listen(self._sleeper), name="ear")

    async def _listen(self, sleeper: Sleeper) -> None:
        async for notice in listen(self._listen_url, ["shiftboss_tasks", "shiftboss_orders"]):
            if notice == MISSED or (notice.channel == "shiftboss_orders" and notice.payload == self._id):
                self.orders.set()
            if notice.channel != "shiftboss_orders":
                sleeper.notice(notice.payload)

    async def claim(self, limit: int) -> list[Claimed]:
        marks = self._marks.take()
        began = time.monotonic()
        self._claiming = True
        try:
            claimed = await self._db.tasks.claim(self._id, limit, marks, incarnation=self._incarnation)
        finally:
            self._claiming = False
        self._marks.learn(claimed, limit, marks is not None, time.monotonic() - began)
        if not claimed and marks is not None:  # tasks that were committed late may lie before the marks
            asyncio.get_running_loop().call_later(self._marks.due(), self.arrived.set)
        if self._sleeper is not None:
            self._sleeper.found(bool(claimed))
        return claimed

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        by_kind: dict[type, list[Report]] = defaultdict(list)
        for report in reports:
            by_kind[type(report.outcome)].append(report)
        stale: list[UUID] = []
        locked: set[UUID] = set()
        for some in by_kind.values():
            try:
                stale += await self._report(some)
            except TasksLocked as error:
                stale += error.stale
                locked |= error.ids
        if locked:
            raise TasksLocked(locked, stale)
        return stale

    async def _report(self, some: list[Report]) -> list[UUID]:
        """Reports of one kind."""
        tasks, held = self._db.tasks, [(report.task.id, report.task.lease) for report in some]
        match some[0].outcome:
            case Complete():
                return await tasks.complete(
                    held, [r.outcome.result for r in some if isinstance(r.outcome, Complete)]
                )
            case Fail():
                fails = [r.outcome for r in some if isinstance(r.outcome, Fail)]
                kinds, retry = [f.kind for f in fails], [f.retry for f in fails]
                delays = [None if f.after is None else timedelta(seconds=f.after) for f in fails]
                return await tasks.fail(held, [f.error for f in fails], kinds, retry, delays)
            case Postpone():
                later = [r.outcome for r in some if isinstance(r.outcome, Postpone)]
                pauses = [timedelta(seconds=p.seconds) for p in later]
                return await tasks.defer(held, pauses, [p.reason for p in later])
            case Cancelled():
                return await tasks.cancelled(held)
            case Suspended():
                waits = [r.outcome.waits for r in some if isinstance(r.outcome, Suspended)]
                return await self._db.steps.suspend(held, waits)

    def report_apart(self, reports: Sequence[Report], seconds: float) -> None:
        async def deliver() -> None:
            async with asyncio.timeout(seconds), await type(self._db).open(self._db.url, max_size=1) as db:
                await DatabaseSource(db).report(reports)

        asyncio.run(deliver())

    def hold(self) -> list[Claimed]:
        return []

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        return await DatabaseSource.report(self, reports)

    async def progress(self, held: Held, percents: Sequence[int], messages: Sequence[str | None]) -> None:
        await self._db.tasks.progress(held, percents, messages)

    async def logs(self, lines: Sequence[LogLine], ended: Sequence[UUID]) -> None:
        await self._db.logs.append(lines, ended)

    async def beat(self, leases: Sequence[int], usage: dict[str, Any], stats: list[dict[str, Any]]) -> Orders:
        self.orders.clear()
        # What a claim brings may be ours without being among them: then nothing is said of leases, for those
        # that a worker does not know are taken from it.
        held = None if self._claiming else leases
        if self.presence is None:
            return await self._db.workers.beat(self._id, held, usage, stats or None, self._incarnation)
        with self.presence.told() as told:
            orders, told.trouble = await self._db.workers.beat_process(
                self._id,
                held,
                usage,
                stats or None,
                self._incarnation,
                slot=told.slot,
                process=told.process,
            )
        return orders

    async def leave(self) -> None:
        if self._ear is not None:
            self._ear.cancel()
            with suppress(asyncio.CancelledError):
                await self._ear
            self._ear = None
        if self._sleeper is not None:
            await self._sleeper.close()
        await self._db.workers.leave(self._id, incarnation=self._incarnation)
