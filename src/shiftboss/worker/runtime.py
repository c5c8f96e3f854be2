"""A worker: claims ahead, runs up to its concurrency, reports in batches, whatever its source."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftboss import tracing
from shiftboss.lifecycle import Backoff, Service, sleep
from shiftboss.lifecycle.waiting import when_up
from shiftboss.log import get_logger
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import Cancelled, Claimed, Outcome, Postpone, Report
from shiftboss.model.worker import Member, Orders
from shiftboss.worker import blocked
from shiftboss.worker.counters import Counters
from shiftboss.worker.executor import MOMENT, Attempt, Executor
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.heart import Heart
from shiftboss.worker.hooks import Ended, Hooks, Joined, Left, Started
from shiftboss.worker.limits import Limits
from shiftboss.worker.logs import LogWriter
from shiftboss.worker.mark import Mark
from shiftboss.worker.outbox import Outbox
from shiftboss.worker.progress import Progress
from shiftboss.worker.source import Source
from shiftboss.worker.spool import Spool
from shiftboss.worker.steps import StepWriter
from shiftboss.worker.watchdog import Blocked, Watchdog, running

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.engines import Engine

log = get_logger(__name__)

AHEAD_SECONDS = 0.1
HOARD_SECONDS = 1.0


class Worker(Service):
    """Runs until stopped or drained. `stop` gives back what does not end within the grace time."""

    def __init__(
        self,
        source: Source,
        handlers: Handlers,
        member: Member,
        settings: WorkerSettings | None = None,
        *,
        db: Database | None = None,
        engine: Engine | None = None,
        hooks: Hooks | None = None,
        spool_dir: Path | None = None,
        mark: Mark | None = None,
        on_blocked: Callable[[str], None] | None = None,
    ) -> None:
        """`on_blocked` hears, in another thread, that the event loop is blocked, after that was reported: end
        the process there, since nothing else can stop the handler that blocks it."""
        super().__init__()
        self._source, self._member = source, member
        self._settings = settings or WorkerSettings()
        self.grace = self._settings.grace_seconds + 15
        self.hooks = hooks or Hooks()
        self.counters = Counters()
        self.limits = Limits(self._settings)
        self._progress = Progress(source)
        self._mark = mark or Mark()
        self._running: dict[int, Attempt] = {}
        self._logs = LogWriter(source, self._running, self._settings.task_logs)
        self._executor = Executor(
            handlers,
            self._progress.note,
            db,
            self._settings.concurrency,
            self._settings.max_memory_mb,
            lambda attempt, outcome: self._end(attempt, outcome, time.monotonic() - attempt.since),
            self._mark,
            None if source.steps is None else StepWriter(source.steps, source),
            on_logs=self._logs.capture.pass_on,
            engine=engine,
        )
        self._spool_dir = spool_dir / source.spool if spool_dir is not None else None
        self._spool = Spool(self._spool_dir) if self._spool_dir is not None else None
        self._outbox = Outbox(source, self._spool)
        self._heart = Heart(
            source,
            self.counters,
            beat_seconds=self._settings.beat_seconds,
            lease_seconds=self._settings.lease_seconds,
            leases=self._leases,
            usage=self._usage,
            on_orders=self._obey,
            on_lost=self._abandon,
        )
        self._watchdog = Watchdog(
            self._mark, self._settings.lease_seconds, lambda: self._heart.landed, self._blocked
        )
        self._on_blocked = on_blocked
        self._parts: tuple[Service, ...] = (self._outbox, self._progress, self._heart, self._logs)
        self._inbox: deque[tuple[Claimed, float]] = deque()
        self._space = asyncio.Event()
        self._executor.batches.on_room = self._space.set
        self._engine = engine
        if engine is not None:
            engine.on_room = self._space.set
        self._idle = asyncio.Event()
        self._paused = False
        self._draining = False
        self._held_back: str | None = None
        self._pace: float | None = None
        self._claimed = self._idle_looks = 0
        self._broken: str | None = None

    @property
    def id(self) -> str:
        return self._member.id

    @property
    def current(self) -> list[Claimed]:
        """What runs now."""
        return [attempt.task for attempt in self._running.values()]

    def pause(self, paused: bool) -> None:
        """Finish what is in hand, claim nothing new; or go on."""
        if paused != self._paused:
            self._paused = paused
            log.info("paused" if paused else "resumed", worker_id=self.id)
            self._nudge()

    def drain(self) -> None:
        """Finish what is in hand, then end."""
        if not self._draining:
            self._draining = True
            log.info("draining", worker_id=self.id, running=len(self._running))
            self._nudge()

    async def run(self) -> None:
        # Before joining: a new worker of their name gives back what former processes held.
        await self._outbox.redeliver(self.stopping)
        await self._executor.open()
        await when_up(lambda: self._source.join(self._member), self._mark.away, self.stopping)
        for part in self._parts:
            await part.start()
            part.watch(self._break)
        self._watchdog.start()
        self.hooks.emit(Joined(self.id))
        self.ready()
        claiming = asyncio.create_task(self._claim(), name="claims")
        try:
            await self._until_done(claiming)
        finally:
            try:
                await self._finish(claiming)
            finally:
                self._watchdog.stop()
        if self._broken is not None:
            raise ShiftbossError(f"{self._broken} of this worker has died", hint="its log tells why")

    async def _until_done(self, claiming: asyncio.Task[None]) -> None:
        """Until claiming ends, or a stop, which does not wait for a claim that hangs."""
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({claiming, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        if claiming.done():
            claiming.result()

    def _break(self, part: Service) -> None:
        """Without one of its parts a worker would hold what it cannot finish, or work on what it lost."""
        self._broken = type(part).__name__
        log.error("a part of this worker has died: stopping", part=self._broken, worker_id=self.id)
        self._abandon()
        self.request_stop()

    async def _claim(self) -> None:
        backoff = Backoff()
        while not self.stopping.is_set() and not self._draining:
            room = self._room()
            if room <= 0:
                await sleep(self._settings.poll_seconds, self._space)
                self._space.clear()
                self._return_hoard()
                self._pump()
                continue
            self._source.arrived.clear()
            try:
                claimed = await self._source.claim(room)
            except Exception as error:
                odd = not isinstance(error, ShiftbossError)
                log.warning("could not claim", reason=str(error), exc_info=odd)
                await sleep(backoff.next(), self.stopping)
                continue
            backoff.reset()
            if any(task.crashes for task in claimed):
                claimed = self._one_suspect(claimed)
            now = time.monotonic()
            self._inbox.extend((task, now) for task in claimed)
            if self.stopping.is_set() or self._heart.lost:
                self._give_back("its worker stopped while it was claimed")
            self._pump()
            self._drain_if_enough(len(claimed))
            if claimed and len(claimed) < room:
                await asyncio.sleep(0)  # nothing hurries but these: let them start before the next look
            if not claimed:
                await sleep(self._settings.poll_seconds * random.uniform(0.9, 1.1), self._source.arrived)

    def _drain_if_enough(self, found: int) -> None:
        """End where the settings say so. One empty claim proves nothing: coordinators send when they like."""
        self._claimed += found
        self._idle_looks = 0 if found or self._running or self._inbox else self._idle_looks + 1
        idle = self._settings.exit_when_empty and self._idle_looks > 1
        if idle or (self._settings.max_tasks is not None and self._claimed >= self._settings.max_tasks):
            self.drain()

    def _nudge(self) -> None:
        """End whatever the claiming waits for: it looks at its orders again."""
        self._space.set()
        self._source.arrived.set()

    def request_stop(self) -> None:
        super().request_stop()
        self._source.orders.set()  # the next beat says so, at once
        self._nudge()

    def _ahead(self) -> int:
        """How many to claim beyond what can run now: a tenth of a second's work, none if tasks are slow."""
        if self._pace is None or self._engine is not None:
            return 0
        return min(
            self._settings.batch, int(self._settings.concurrency * AHEAD_SECONDS / max(self._pace, 1e-6))
        )

    def _room(self) -> int:
        """How many to claim now; 0 while there is enough at hand or a reason not to."""
        if self._paused or self._heart.lost or len(self._outbox) > 4 * self._settings.batch:
            return 0
        if self._suspecting():
            return 0
        self._held_back = self.limits.exceeded()
        if self._held_back is not None:
            return 0
        left = self._settings.batch
        if self._settings.max_tasks is not None:
            left = min(left, self._settings.max_tasks - self._claimed)
        if self._engine is not None:
            room = self._engine.room(len(self._running) + len(self._inbox))
            self._held_back = self._engine.full() if room <= 0 else None
            return min(room, left)
        ahead = self._ahead()
        room = self._executor.free(len(self._running), self._settings.concurrency) + ahead - len(self._inbox)
        return min(room, left) if room > ahead // 2 else 0

    def _one_suspect(self, claimed: list[Claimed]) -> list[Claimed]:
        """At most one task that was in hand when a worker crashed, and that last: it starts when all others
        are done and reported, so that nobody else is blamed if it kills this worker as well."""
        suspects = [task for task in claimed if task.crashes]
        for task in suspects[1:]:
            self._outbox.put(Report(task, Postpone(1.0, "its worker crashed: waits to run alone"), 0.0))
        return [task for task in claimed if not task.crashes] + suspects[:1]

    def _alone(self) -> bool:
        """Whether nothing else is in hand, here or on its way, that a crash could be blamed on."""
        for task in self._source.hold():
            self._outbox.put(Report(task, Postpone(0, "its worker runs another task alone"), 0.0))
        return not self._running and not len(self._outbox)

    def _suspecting(self) -> bool:
        """Does a suspect wait for its turn, or run?"""
        if self._inbox:
            return self._inbox[-1][0].crashes > 0
        return len(self._running) == 1 and next(iter(self._running.values())).task.crashes > 0

    def _return_hoard(self) -> None:
        """Tasks that were claimed ahead and are stuck behind slow ones go back, for others to take."""
        if self._inbox and time.monotonic() - self._inbox[0][1] > HOARD_SECONDS and not self._suspecting():
            self._pace = None
            self._give_back("claimed ahead, but its worker was busy")

    def _give_back(self, reason: str) -> None:
        while self._inbox:
            task, _ = self._inbox.pop()
            self._outbox.put(Report(task, Postpone(0, reason), 0.0))

    def _pump(self) -> None:
        loop = asyncio.get_running_loop()
        while self._inbox:
            task, since = self._inbox[0]
            if not self._engine and not self._executor.fits(
                task, len(self._running), self._settings.concurrency
            ):
                return
            if task.crashes and not self._alone():
                return
            self._inbox.popleft()
            attempt = Attempt(task, since)
            self._running[task.lease] = attempt
            attempt.handle = loop.create_task(self._attempt(attempt))

    async def _attempt(self, attempt: Attempt) -> None:
        if self.hooks:
            self.hooks.emit(Started(attempt.task))
        began, lease = time.monotonic(), attempt.task.lease
        running.set(lease)
        self._mark.start(lease)
        try:
            outcome = await self._mark.steps(lease, self._executor.run(attempt))
        finally:
            self._mark.end(lease)
        self._end(attempt, outcome, time.monotonic() - began)

    def _end(self, attempt: Attempt, outcome: Outcome, seconds: float) -> None:
        if self._running.pop(attempt.task.lease, None) is None:
            return  # it was given up before
        self._progress.forget(attempt.task.lease)
        self._logs.capture.end(attempt.task.lease)
        tracing.end(attempt.span, outcome)
        self._pace = seconds if self._pace is None else self._pace + 0.1 * (seconds - self._pace)
        report = Report(attempt.task, outcome, seconds)
        if attempt.stopped != "lost":
            self.counters.add(report)
            self._outbox.put(report)
        if self.hooks:
            self.hooks.emit(Ended(report))
        if self._executor.abandoned >= self._settings.max_abandoned and not self._draining:
            log.error(
                "too many handlers went on after their time: ending", abandoned=self._executor.abandoned
            )
            self.drain()
        if self._inbox:
            self._pump()
        if not self._space.is_set() and len(self._inbox) <= self._ahead() // 2:
            self._space.set()
        if not self._running:
            self._idle.set()

    def _leases(self) -> list[int]:
        waiting = [task.lease for task, _ in self._inbox]
        return [*self._running, *waiting, *self._outbox.leases()]

    def _usage(self) -> dict[str, Any]:
        usage = self.limits.usage() | {
            "running": len(self._running),
            "goroutine_count": len(asyncio.all_tasks()) + threading.active_count(),
            "abandoned": self._executor.abandoned,
        }
        return usage | ({"held_back": self._held_back} if self._held_back else {})

    def _obey(self, orders: Orders) -> None:
        if not orders.known:
            log.error("the fleet does not know this worker any more: stopping", worker_id=self.id)
            self._abandon()
            self.request_stop()
            return
        for lease in orders.cancel:
            self._stop_one(lease, "cancel")
        mine = self._running.keys() | {task.lease for task, _ in self._inbox}
        for lease in mine.intersection(orders.lost):
            self._stop_one(lease, "lost")
        self.pause(orders.paused)
        if orders.draining:
            self.drain()

    def _stop_one(self, lease: int, why: Any) -> None:
        attempt = self._running.get(lease)
        if attempt is not None:
            self._executor.stop(attempt, why)
            return
        for entry in list(self._inbox):
            if entry[0].lease == lease:
                self._inbox.remove(entry)
                if why == "cancel":
                    self._outbox.put(Report(entry[0], Cancelled(), 0.0))

    def _abandon(self) -> None:
        """Our leases may be gone: end all work, report none of it."""
        self._inbox.clear()
        for attempt in list(self._running.values()):
            self._executor.stop(attempt, "lost")

    def _blocked(self, block: Blocked) -> None:
        """In the watchdog's thread. A spool of its own: the event loop may come back at any moment."""
        log.error(blocked.explain(block), worker_id=self.id)
        waiting = [task for task, _ in list(self._inbox)]
        reports = [*self._outbox.reports(), *blocked.verdict(block, list(self._running.values()), waiting)]
        last = self._on_blocked is not None and self._spool_dir is not None
        spool = Spool(self._spool_dir) if last and self._spool_dir is not None else None
        blocked.deliver(self._source, reports, spool, max(self._settings.lease_seconds * 0.15, 1.0))
        if self._on_blocked is not None:
            self._on_blocked(blocked.explain(block))

    async def _finish(self, claiming: asyncio.Task[None]) -> None:
        if not self._draining:
            self._give_back("its worker stopped")
        await self._rest(
            None if self._draining and not self.stopping.is_set() else self._settings.grace_seconds
        )
        # What a claim under way brings goes back as well; one that hangs is left behind.
        await asyncio.wait({claiming}, timeout=MOMENT)
        self._give_back("its worker stopped")
        for attempt in list(self._running.values()):
            self._executor.stop(attempt, "stop")
        await self._rest(MOMENT + 1.0)
        # First of all the results: the parent process may not wait much longer.
        await self._outbox.flush(4.0)
        await asyncio.gather(*(part.stop() for part in self._parts))
        await self._executor.close()
        claiming.cancel()  # after the leave it would take what was just given back
        await asyncio.wait({claiming}, timeout=MOMENT)
        try:
            await self._source.leave()
        except ShiftbossError as error:
            log.warning("could not unregister", reason=error.message)
        if self._spool is not None:
            self._spool.close()
        self.hooks.emit(Left(self.id))

    async def _rest(self, seconds: float | None) -> None:
        """Until nothing runs, or the time is over; a stop ends a drain's patience."""
        ends = None if seconds is None else time.monotonic() + seconds
        while self._running or (self._draining and self._inbox):
            self._idle.clear()
            if ends is None:
                await sleep(3600, self._idle, self.stopping)
                if self.stopping.is_set():
                    ends = time.monotonic() + self._settings.grace_seconds
            elif not await sleep(max(ends - time.monotonic(), 0), self._idle):
                return
