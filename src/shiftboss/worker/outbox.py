"""The outbox: delivers reports in batches, and keeps them on disk while the database is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

from shiftboss.lifecycle import Backoff, Service, sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, OtherInstallation, TasksLocked
from shiftboss.model.task import Fail, Report, storable
from shiftboss.worker.source import Source
from shiftboss.worker.spool import Kept, Spool

log = get_logger(__name__)

UNSTORABLE = "the outcome could not be stored"
LONGEST_LOCK_PAUSE = 2.0
LOCK_TRIES = 5
Deliver = Callable[[Sequence[Report]], Awaitable[list[UUID]]]


class Outbox(Service):
    """Delivers reports in batches. A report is removed only when it was stored or permanently rejected.

    A report whose row another session has locked is set aside and retried, without delaying the others.
    """

    def __init__(self, source: Source, spool: Spool | None = None) -> None:
        super().__init__()
        self._source = source
        self._spool = spool
        self._waiting: list[Report] = []
        self._sending: list[Report] = []
        self._locked: list[Report] = []
        self._patience = Backoff(maximum=LONGEST_LOCK_PAUSE)
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self._something = asyncio.Event()
        self._empty = asyncio.Event()
        self._kept = False
        self.on_delivered: Callable[[], None] = lambda: None
        """Called after each delivery: the worker may wait for room here before it claims again."""

    def put(self, report: Report) -> None:
        if not self._waiting:
            self._empty.clear()
            self._something.set()
        self._waiting.append(report)

    def request_stop(self) -> None:
        super().request_stop()
        self._something.set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sending) + len(self._locked)

    def leases(self) -> list[int]:
        return [report.task.lease for report in self.reports()]

    def reports(self) -> list[Report]:
        """Return all reports that are not delivered yet."""
        return [*self._sending, *self._waiting, *self._locked]

    async def flush(self, timeout: float) -> None:
        """Wait until all reports are delivered. After `timeout` seconds, the rest is written to disk."""
        if len(self) and not (self.running and await sleep(timeout, self._empty)):
            self._keep()

    async def run(self) -> None:
        self.ready()
        backoff = Backoff()
        try:
            while not (self.stopping.is_set() and not self._waiting):
                await self._something.wait()
                self._something.clear()
                while self._next_batch():
                    if not await self._deliver(backoff):
                        return
                    self.on_delivered()
                if not len(self):
                    self._empty.set()
        except BaseException:
            self._keep()
            raise
        finally:
            self._stop_timer()

    def _next_batch(self) -> bool:
        """Select the reports that were set aside, if they are due, or else all waiting reports."""
        due, self._due = self._due, False
        if due and self._locked:
            self._sending, self._locked = self._locked, []
        else:
            self._sending, self._waiting = self._waiting, []
        return bool(self._sending)

    def _set_aside(self) -> None:
        """Set aside reports whose rows another session has locked."""
        self._sending, self._locked = [], self._locked + self._sending
        log.warning("another session has locked tasks, retrying their reports", reports=len(self._locked))
        self._keep()
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self._patience.next(), self._try_locked)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _try_locked(self) -> None:
        self._due = True
        self._something.set()

    async def _deliver(self, backoff: Backoff) -> bool:
        """Deliver the batch. Return False if the worker stops first; the batch is on disk then."""
        while True:
            try:
                self._sending, trouble = await send(self._source.report, self._sending)
            except DatabaseError as error:
                trouble = error
            if isinstance(trouble, TasksLocked):
                self._set_aside()
                trouble = None
            if trouble is None:
                self._delivered(backoff)
                return True
            self._keep()
            log.warning("cannot deliver reports, retrying", reports=len(self), reason=trouble.message)
            if await sleep(backoff.next(), self.stopping):
                self._keep()
                return False
            self._sending += self._waiting
            self._waiting = []

    def _delivered(self, backoff: Backoff) -> None:
        if backoff.failures:
            backoff.reset()
            log.info("reports delivered")
        if self._locked:
            return  # the spool must keep these; delivering the others twice is harmless
        self._patience.reset()
        if self._kept and self._spool is not None:
            self._spool.clear()
            self._kept = False

    async def redeliver(self, stopping: asyncio.Event) -> None:
        """Deliver the reports that former processes left on disk."""
        backoff = Backoff()
        while self._spool is not None and not stopping.is_set():
            try:
                with self._spool.left_behind() as kept:
                    for identity in kept:
                        await self._redeliver(kept, identity)
                return
            except DatabaseError as error:
                log.warning("cannot deliver reports from disk", reason=error.message)
                locked = isinstance(error, TasksLocked) and backoff.failures < LOCK_TRIES
                if not error.about_everything and not locked:
                    return  # the next process tries again
                await sleep(backoff.next(), stopping)

    async def _redeliver(self, kept: Kept, identity: str) -> None:
        try:
            left, trouble = await send(partial(self._source.redeliver, identity), kept[identity])
        except OtherInstallation as error:
            kept.wait.add(identity)
            log.info("kept reports of another installation", reason=error.message)
            return
        log.info("delivered reports from disk", reports=len(kept[identity]) - len(left))
        if trouble is not None:
            raise trouble

    def _keep(self) -> None:
        if self._spool is None or not len(self):
            return
        try:
            self._spool.write(self.reports(), self._source.identity)
            self._kept = True
        except (OSError, TypeError, ValueError) as error:  # most likely a full disk; they are still in memory
            log.warning("cannot write reports to disk", reason=str(error))


async def send(deliver: Deliver, reports: list[Report]) -> tuple[list[Report], DatabaseError | None]:
    """Deliver reports. Return those to retry, and the reason. Raises errors that concern all reports."""
    try:
        stale = await deliver(reports)
    except TasksLocked as error:
        return [report for report in reports if report.task.id in error.ids], error
    except Exception as error:
        if isinstance(error, DatabaseError) and error.about_everything:
            raise
        if len(reports) > 1:
            return await _one_by_one(deliver, reports)
        if isinstance(error, DatabaseError) and not error.about_values:
            return reports, error
        return await _refused(deliver, reports[0], error)
    if stale:
        log.warning("lease lost before the report", tasks=[str(id) for id in stale[:10]])
    return [], None


async def _one_by_one(deliver: Deliver, reports: list[Report]) -> tuple[list[Report], DatabaseError | None]:
    """Deliver reports separately, because one that is rejected would fail the whole batch."""
    waiting: list[Report] = []
    trouble: DatabaseError | None = None
    for report in reports:
        left, error = await send(deliver, [report])
        waiting += left
        trouble = error or trouble
    return waiting, trouble


async def _refused(
    deliver: Deliver, report: Report, error: Exception
) -> tuple[list[Report], DatabaseError | None]:
    """Report a failure instead of an outcome that cannot be stored."""
    if isinstance(report.outcome, Fail) and report.outcome.error.startswith(UNSTORABLE):
        log.error("report rejected", task_id=str(report.task.id), error=storable(str(error)))
        return [], None
    fail = Fail(f"{UNSTORABLE}: {storable(str(error))}", retry=False)
    return await send(deliver, [report._replace(outcome=fail)])
