"""Sources: where a worker gets tasks from and sends reports to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from shiftboss.db.listen import MISSED, listen
from shiftboss.model.errors import TasksLocked
from shiftboss.model.log import LogLine
from shiftboss.model.task import Cancelled, Claimed, Complete, Fail, Postpone, Report, Suspended
from shiftboss.model.worker import Member, Orders
from shiftboss.worker.sleeper import CHANNEL, Sleeper
from shiftboss.worker.spool import seal

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.presence import Presence
    from shiftboss.worker.steps import StepLink

Held = Sequence[tuple[UUID, int]]
_position = attrgetter("lane", "ready_at")


class Source(Protocol):
    """The connection of a worker to its fleet."""

    orders: asyncio.Event
    """Set when there is an order for this worker, so that the next beat is due at once."""
    arrived: asyncio.Event
    """Set when there may be tasks to claim; cleared before each claim."""
    steps: StepLink | None
    """Stores the steps of tasks. None: the worker's own database does."""
    spool: str
    """The subdirectory for reports on disk. Each fleet has its own."""

    @property
    def identity(self) -> str:
        """Stored with reports on disk. A later process needs it to deliver them."""
        ...

    async def join(self, member: Member) -> None: ...

    async def claim(self, limit: int) -> list[Claimed]:
        """Claim up to `limit` tasks. Returns an empty list at once if there are none."""
        ...

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        """Deliver reports. Return the ids of tasks whose lease is stale.

        Raises TasksLocked if some rows are locked; all other reports were delivered.
        """
        ...

    def report_apart(self, reports: Sequence[Report], seconds: float) -> None:
        """Deliver reports from a thread over a new connection, while the event loop is blocked."""
        ...

    def hold(self) -> list[Claimed]:
        """Request no tasks until the next claim. Return tasks that arrived already, to be given back."""
        ...

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        """Deliver reports of a process that has ended. Works before `join`."""
        ...

    async def progress(self, held: Held, percents: Sequence[int], messages: Sequence[str | None]) -> None: ...

    async def logs(self, lines: Sequence[LogLine], ended: Sequence[UUID]) -> None:
        """Store log lines. `ended` has tasks whose attempt has logged its last line."""
        ...

    async def beat(
        self, leases: Sequence[int], usage: dict[str, Any], stats: list[dict[str, Any]]
    ) -> Orders: ...

    async def leave(self) -> None: ...


class Marks:
    """The position up to which each lane is empty. A claim starts there, past dead index entries.

    Late commits and retried tasks are before a mark. Now and then, claims therefore start before the marks,
    or at the front. The further back one starts, the more dead entries it may read, so each distance is
    measured: what its claims cost more than others is at most a twentieth of the time. A worker that keeps up
    tries the next distance as soon as it is allowed; one with a backlog does so once a second.
    """

    EVERY = 1.0
    BACK = tuple(timedelta(seconds=seconds) for seconds in (0.0, 0.1, 1.0, 10.0))
    FRONT = len(BACK)

    def __init__(self) -> None:
        self._marks: dict[int, datetime] = {}
        self._last = [0.0] * (self.FRONT + 1)
        self._cost = [0.0] * (self.FRONT + 1)
        self._seconds_per_task = 0.0
        self._dry = True

    def farthest(self) -> int:
        """Return the greatest distance at which a claim may start now."""
        now = time.monotonic()
        every = 0.0 if self._dry else self.EVERY
        allowed = [n for n in range(self.FRONT + 1) if now >= self._next(n, every)]
        return max([int(self._dry), *allowed]) if self._marks else self.FRONT

    def at(self, distance: int) -> dict[int, datetime] | None:
        """Return the marks for a claim at this distance, or None for one from the front."""
        if distance == self.FRONT:
            return None
        return {lane: mark - self.BACK[distance] for lane, mark in self._marks.items()}

    def _next(self, distance: int, every: float = 0.0) -> float:
        return self._last[distance] + max(every, self._cost[distance] * 20)

    def due(self, distance: int) -> float | None:
        """Return the seconds until a claim may start further back than this. None: that is not possible."""
        further = range(distance + 1, self.FRONT + 1)
        return max(min(map(self._next, further)) - time.monotonic(), 0.0) if further else None

    def learn(
        self, distance: int, last: Mapping[int, datetime], count: int, *, dry: bool, seconds: float
    ) -> None:
        """Record a claim of `count` tasks: the last ready time of each lane, and whether it found all."""
        self._dry = dry
        if distance > 1:
            self._cost[distance] = max(seconds - count * self._seconds_per_task, 0.0)
        elif count:
            self._seconds_per_task += 0.2 * (seconds / count - self._seconds_per_task)
        self._last[: distance + 1] = [time.monotonic()] * (distance + 1)
        for lane, ready_at in last.items():
            if lane not in self._marks or ready_at > self._marks[lane]:
                self._marks[lane] = ready_at


class DatabaseSource:
    """Claims from PostgreSQL. NOTIFY wakes it while it sleeps; it also polls."""

    identity = ""  # reports need only their lease
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
        self._listener: asyncio.Task[None] | None = None
        self._claiming = False
        self.presence: Presence | None = None
        """The rows of this process, which the heartbeat updates as well."""
        self._id = ""
        self._incarnation: UUID | None = None

    async def join(self, member: Member) -> None:
        self._id, self._incarnation = member.id, member.incarnation
        await self._db.workers.register(member)
        if self._sleeper is not None and self._listener is None:
            self._listener = asyncio.create_task(self._listen(self._sleeper), name="listener")

    async def _listen(self, sleeper: Sleeper) -> None:
        channels = [CHANNEL, "shiftboss_orders"]
        async for notice in listen(self._listen_url, channels, sleeper.answer):
            if notice == MISSED or (notice.channel == "shiftboss_orders" and notice.payload == self._id):
                self.orders.set()
            if notice.channel != "shiftboss_orders":
                sleeper.notice(notice)

    async def claim(self, limit: int) -> list[Claimed]:
        distance = self._marks.farthest()
        began, marks = time.monotonic(), self._marks.at(distance)
        self._claiming = True
        try:
            claimed = await self._db.tasks.claim(self._id, limit, marks, incarnation=self._incarnation)
        finally:
            self._claiming = False
        last: dict[int, datetime] = {}
        for lane, ready_at in map(_position, claimed):
            if lane not in last or ready_at > last[lane]:
                last[lane] = ready_at
        seconds = time.monotonic() - began
        self._marks.learn(distance, last, len(claimed), dry=len(claimed) < limit, seconds=seconds)
        due = self._marks.due(distance)
        if not claimed and due is not None:  # tasks that were committed late may be before the marks
            asyncio.get_running_loop().call_later(due, self.arrived.set)
        if self._sleeper is not None:
            self._sleeper.found(bool(claimed))
        return claimed

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        kinds = dict.fromkeys([type(outcome) for _, outcome, _ in reports])
        stale: list[UUID] = []
        locked: set[UUID] = set()
        for kind in kinds:
            try:
                stale += await self._report([r for r in reports if type(r[1]) is kind])
            except TasksLocked as error:
                stale += error.stale
                locked |= error.ids
        if locked:
            raise TasksLocked(locked, stale)
        return stale

    async def _report(self, some: list[Report]) -> list[UUID]:
        """Deliver reports of one kind."""
        tasks, held = self._db.tasks, [task[:2] for task, _, _ in some]
        match some[0].outcome:
            case Complete():
                results = [outcome.result for _, outcome, _ in some if isinstance(outcome, Complete)]
                return await tasks.complete(held, results)
            case Fail():
                fails = [r.outcome for r in some if isinstance(r.outcome, Fail)]
                kinds, retry = [f.kind for f in fails], [f.retry for f in fails]
                delays = [None if f.after is None else timedelta(seconds=f.after) for f in fails]
                return await tasks.fail(held, [f.error for f in fails], kinds, retry, delays)
            case Postpone():
                later = [o for r in some if isinstance(o := seal(r.outcome), Postpone)]
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
        # The database takes back tasks whose lease a beat does not list. During a claim the list may lack
        # new leases, so send none.
        held = None if self._claiming else leases
        if self.presence is None:
            return await self._db.workers.beat(self._id, held, usage, stats or None, self._incarnation)
        with self.presence.rows() as rows:
            orders, rows.trouble = await self._db.workers.beat_process(
                self._id,
                held,
                usage,
                stats or None,
                self._incarnation,
                slot=rows.slot,
                process=rows.process,
            )
        return orders

    async def leave(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None
        if self._sleeper is not None:
            await self._sleeper.close()
        await self._db.workers.leave(self._id, incarnation=self._incarnation)
