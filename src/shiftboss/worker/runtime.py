"""A worker: claims tasks from its source, runs them, and reports in batches."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextvars import copy_context
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
from shiftboss.worker.batches import STOP_SECONDS
from shiftboss.worker.capacity import Capacity
from shiftboss.worker.counters import Counters
from shiftboss.worker.executor import Attempt, Executor, Stop
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.heart import Heart
from shiftboss.worker.inbox import Inbox
from shiftboss.worker.limits import ProcessLimits
from shiftboss.worker.logs import LogWriter
from shiftboss.worker.mark import Mark
from shiftboss.worker.next_turn import NextTurn
from shiftboss.worker.outbox import Outbox
from shiftboss.worker.progress import ProgressSender
from shiftboss.worker.source import Source
from shiftboss.worker.spool import Spool
from shiftboss.worker.steps import StepWriter
from shiftboss.worker.watchdog import Blocked, Watchdog, running

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.engines import Engine

log = get_logger(__name__)

STARTS_PER_TURN = 50


class Worker(Service):
    """Runs tasks until it is stopped or drained. On `stop`, tasks have the grace time to finish."""

    def __init__(
        self,
        source: Source,
        handlers: Handlers,
        member: Member,
        settings: WorkerSettings | None = None,
        *,
        db: Database | None = None,
        engine: Engine | None = None,
        on_ended: Callable[[Report], None] | None = None,
        spool_dir: Path | None = None,
        mark: Mark | None = None,
        on_blocked: Callable[[str], None] | None = None,
    ) -> None:
        """`on_ended` is called for each attempt that has ended. Its report may not be delivered yet.

        `on_blocked` is called in another thread after a block of the event loop has been reported. It
        should end the process, because nothing else can stop the handler.
        """
        super().__init__()
        self._source, self._member = source, member
        self._settings = settings or WorkerSettings()
        self.grace = self._settings.grace_seconds + 15
        self._on_ended = on_ended
        self.counters = Counters()
        self.limits = ProcessLimits(self._settings)
        self._progress = ProgressSender(source)
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
            on_orders=self._follow,
            on_lost=self._abandon,
        )
        self._watchdog = Watchdog(
            self._mark, self._settings.lease_seconds, lambda: self._heart.last_success, self._blocked
        )
        self._on_blocked = on_blocked
        self._parts: tuple[Service, ...] = (self._outbox, self._progress, self._heart, self._logs)
        self._inbox = Inbox(self._outbox)
        self._space = asyncio.Event()
        self._executor.batches.on_room = self._space.set
        self._outbox.on_delivered = self._space.set
        self._engine = engine
        self._capacity = Capacity(self._settings, self.limits, self._executor, engine)
        if engine is not None:
            engine.on_room = self._space.set
        self._idle = asyncio.Event()
        self._next_turn = NextTurn(self._go_on)
        self._paused = False
        self._draining = False
        self._broken: str | None = None

    @property
    def id(self) -> str:
        return self._member.id

    @property
    def queues(self) -> list[str] | None:
        return self._member.queues

    @property
    def current(self) -> list[Claimed]:
        """The running tasks."""
        return [attempt.task for attempt in self._running.values()]

    def pause(self, paused: bool) -> None:
        """Stop claiming, or continue. Running tasks are not affected."""
        if paused != self._paused:
            self._paused = paused
            log.info("paused" if paused else "resumed", worker_id=self.id)
            self._wake()

    def drain(self) -> None:
        """Finish all claimed tasks, then end."""
        if not self._draining:
            self._draining = True
            log.info("draining", worker_id=self.id, running=len(self._running))
            self._wake()

    async def run(self) -> None:
        # Before joining: when a worker of the same name joins, the tasks of former processes are given back.
        await self._outbox.redeliver(self.stopping)
        await self._executor.open()
        self._next_turn.context = copy_context()  # with the variables that the hooks have set
        await when_up(lambda: self._source.join(self._member), self._mark.away, self.stopping)
        for part in self._parts:
            await part.start()
            part.watch(self._on_part_ended)
        self._watchdog.start()
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
            raise ShiftbossError(f"{self._broken} of this worker has ended unexpectedly", hint="see its log")

    async def _until_done(self, claiming: asyncio.Task[None]) -> None:
        """Wait until claiming ends or a stop is requested. A stop does not wait for a claim that hangs."""
        stop = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({claiming, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        if claiming.done():
            claiming.result()

    def _on_part_ended(self, part: Service) -> None:
        """Stop: without this part, tasks could not be finished, or would run after their leases are lost."""
        self._broken = type(part).__name__
        log.error("a part of the worker ended unexpectedly, stopping", part=self._broken, worker_id=self.id)
        self._abandon()
        self.request_stop()

    async def _claim(self) -> None:
        backoff = Backoff()
        while not self.stopping.is_set() and not self._draining:
            room = self._room()
            if room <= 0:
                await sleep(self._settings.poll_seconds, self._space)
                self._space.clear()
                if self._inbox.stuck:
                    self._capacity.pace = None
                    self._inbox.give_back("claimed ahead, but its worker was busy")
                self._start_tasks()
                continue
            self._source.arrived.clear()
            try:
                claimed = await self._source.claim(room)
            except Exception as error:
                unexpected = not isinstance(error, ShiftbossError)
                log.warning("cannot claim tasks", reason=str(error), exc_info=unexpected)
                await sleep(backoff.next(), self.stopping)
                continue
            backoff.reset()
            self._capacity.weigh(claimed)
            accepted = self._inbox.accept(claimed)
            if self.stopping.is_set() or self._heart.lost:
                self._inbox.give_back("its worker stopped while it was claimed")
            self._start_tasks()
            if self._capacity.is_done(accepted, bool(self._running or self._inbox)):
                self.drain()
            if 0 < accepted < room:
                await asyncio.sleep(0)  # let these start before the next claim
            if not accepted:
                await sleep(self._settings.poll_seconds * random.uniform(0.9, 1.1), self._source.arrived)

    def _wake(self) -> None:
        """Wake the claim loop, so that it checks its state again."""
        self._space.set()
        self._source.arrived.set()

    def request_stop(self) -> None:
        super().request_stop()
        self._source.orders.set()  # report it with a beat at once
        self._wake()

    def _room(self) -> int:
        """Return how many tasks to claim now."""
        if self._paused or self._heart.lost or len(self._outbox) > 2 * self._settings.batch:
            return 0
        if self._holds_suspect():
            return 0
        return self._capacity.room(len(self._running), len(self._inbox))

    def _alone(self) -> bool:
        """Whether this worker holds no other task, so that a suspect can run alone."""
        for task in self._source.hold():
            self._outbox.put(Report(task, Postpone(0, "its worker runs another task alone"), 0.0))
        return not self._running and not len(self._outbox)

    def _holds_suspect(self) -> bool:
        if self._inbox:
            return self._inbox.has_suspect
        return len(self._running) == 1 and next(iter(self._running.values())).task.crashes > 0

    def _go_on(self) -> None:
        self._start_tasks()
        if not self._space.is_set() and len(self._inbox) <= self._capacity.ahead() // 2:
            self._space.set()
        if not self._running:
            self._idle.set()

    def _start_tasks(self) -> None:
        """Start waiting tasks, but only some per turn: results of the database are read between turns."""
        loop = asyncio.get_running_loop()
        for _ in range(STARTS_PER_TURN):
            if not self._may_start():
                return
            task, since = self._inbox.popleft()
            attempt = self._running[task.lease] = Attempt(task, since)
            attempt.handle = asyncio.Task(self._attempt(attempt), loop=loop)
        self._next_turn.ask()

    def _may_start(self) -> bool:
        if not self._inbox:
            return False
        task = self._inbox[0][0]
        running, most = len(self._running), self._settings.concurrency
        if running >= most and not self._engine and not self._executor.fits(task, running, most):
            return False
        return not task.crashes or self._alone()

    async def _attempt(self, attempt: Attempt) -> None:
        began, lease = time.monotonic(), attempt.task.lease
        running.set(lease)
        self._mark.start(lease)
        try:
            outcome = await self._mark.steps(lease, self._executor.run(attempt))
        finally:
            self._mark.end(lease)
            attempt.handle = None  # otherwise a cycle of references keeps everything until garbage collection
        self._end(attempt, outcome, time.monotonic() - began)

    def _end(self, attempt: Attempt, outcome: Outcome, seconds: float) -> None:
        lease = attempt.task.lease
        if self._running.pop(lease, None) is None:
            return  # it was abandoned
        self._progress.forget(lease)
        self._logs.capture.end(lease)
        if attempt.span is not None:
            tracing.end(attempt.span, outcome)
        self._capacity.note(seconds)
        report = Report(attempt.task, outcome, seconds)
        if attempt.stopped != "lost":
            self.counters.add(report)
            self._outbox.put(report)
        if self._on_ended is not None:
            self._on_ended(report)
        if self._executor.abandoned >= self._settings.max_abandoned and not self._draining:
            log.error("too many abandoned handlers, draining", abandoned=self._executor.abandoned)
            self.drain()
        self._next_turn.ask()

    def _leases(self) -> list[int]:
        waiting = [task.lease for task, _ in self._inbox]
        return [*self._running, *waiting, *self._outbox.leases()]

    def _usage(self) -> dict[str, Any]:
        return self._capacity.usage(len(self._running))

    def _follow(self, orders: Orders) -> None:
        if not orders.known:
            log.error("this worker is not registered any more, stopping", worker_id=self.id)
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

    def _stop_one(self, lease: int, why: Stop) -> None:
        attempt = self._running.get(lease)
        if attempt is not None:
            self._executor.stop(attempt, why)
            return
        task = self._inbox.take(lease)
        if task is not None and why == "cancel":
            self._outbox.put(Report(task, Cancelled(), 0.0))

    def _abandon(self) -> None:
        """Stop all tasks without reports, because the leases may be lost."""
        self._inbox.clear()
        for attempt in list(self._running.values()):
            self._executor.stop(attempt, "lost")

    def _blocked(self, block: Blocked) -> None:
        """Report a blocked event loop. Runs in the watchdog's thread.

        It uses a separate spool, because the event loop may continue at any time.
        """
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
            self._inbox.give_back("its worker stopped")
        await self._wait_until_idle(
            None if self._draining and not self.stopping.is_set() else self._settings.grace_seconds
        )
        # Give back the tasks of a pending claim as well, but do not wait for a claim that hangs.
        await asyncio.wait({claiming}, timeout=STOP_SECONDS)
        self._inbox.give_back("its worker stopped")
        for attempt in list(self._running.values()):
            self._executor.stop(attempt, "stop")
        await self._wait_until_idle(STOP_SECONDS + 1.0)
        # Deliver the results first: the supervisor may not wait much longer.
        await self._outbox.flush(4.0)
        await asyncio.gather(*(part.stop() for part in self._parts))
        await self._executor.close()
        claiming.cancel()  # after `leave` it would claim the tasks that were just given back
        await asyncio.wait({claiming}, timeout=STOP_SECONDS)
        try:
            await self._source.leave()
        except ShiftbossError as error:
            log.warning("cannot unregister", reason=error.message)
        if self._spool is not None:
            self._spool.close()

    async def _wait_until_idle(self, seconds: float | None) -> None:
        """Wait until no task runs or the time is over. If a stop interrupts a drain, use the grace time."""
        ends = None if seconds is None else time.monotonic() + seconds
        while self._running or (self._draining and self._inbox):
            self._idle.clear()
            if ends is None:
                await sleep(3600, self._idle, self.stopping)
                if self.stopping.is_set():
                    ends = time.monotonic() + self._settings.grace_seconds
            elif not await sleep(max(ends - time.monotonic(), 0), self._idle):
                return
