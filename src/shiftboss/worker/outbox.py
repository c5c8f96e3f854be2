"""Reports on their way out: delivered in batches, kept on disk while nobody takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID

import structlog

from shiftboss.lifecycle import Backoff, Service, sleep
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import Fail, Report, storable
from shiftboss.worker.source import Source
from shiftboss.worker.spool import Spool

log = structlog.get_logger()

UNSTORABLE = "the outcome could not be stored"
Deliver = Callable[[Sequence[Report]], Awaitable[list[UUID]]]


class Outbox(Service):
    """Delivers reports in batches. A report leaves it only when it was taken, or refused for good."""

    def __init__(self, source: Source, spool: Spool | None = None) -> None:
        super().__init__()
        self._source = source
        self._spool = spool
        self._waiting: list[Report] = []
        self._sending: list[Report] = []
        self._something = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._kept = False

    def put(self, report: Report) -> None:
        self._waiting.append(report)
        self._empty.clear()
        self._something.set()

    def request_stop(self) -> None:
        super().request_stop()
        self._something.set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sending)

    def leases(self) -> list[int]:
        return [report.task.lease for report in (*self._sending, *self._waiting)]

    async def flush(self, timeout: float) -> None:
        """Wait until all is delivered; what is not by then is kept on disk."""
        if len(self) and not (self.running and await sleep(timeout, self._empty)):
            self._keep()

    async def run(self) -> None:
        self.ready()
        backoff = Backoff()
        try:
            while not (self.stopping.is_set() and not self._waiting):
                await self._something.wait()
                self._something.clear()
                while self._waiting:
                    self._sending, self._waiting = self._waiting, []
                    if not await self._deliver(backoff):
                        return
                self._empty.set()
        except BaseException:
            self._keep()
            raise

    async def _deliver(self, backoff: Backoff) -> bool:
        """Until it is taken; False when we must stop before that (the spool has it then)."""
        while True:
            try:
                self._sending, trouble = await send(self._source.report, self._sending)
            except DatabaseError as error:
                trouble = error
            if trouble is None:
                self._delivered(backoff)
                return True
            self._keep()
            log.warning("reports wait", reports=len(self), reason=trouble.message)
            if await sleep(backoff.next(), self.stopping):
                self._keep()
                return False
            self._sending += self._waiting
            self._waiting = []

    def _delivered(self, backoff: Backoff) -> None:
        if backoff.failures:
            backoff.reset()
            log.info("reports delivered after all")
        if self._kept and self._spool is not None:
            self._spool.clear()
            self._kept = False

    async def redeliver(self, stopping: asyncio.Event) -> None:
        """Deliver what former processes left on disk."""
        backoff = Backoff()
        while self._spool is not None and not stopping.is_set():
            try:
                with self._spool.left_behind() as kept:
                    for identity, reports in kept.items():
                        left, trouble = await send(partial(self._source.redeliver, identity), reports)
                        log.info("kept reports delivered", reports=len(reports) - len(left))
                        if trouble is not None:
                            raise trouble
                return
            except DatabaseError as error:
                log.warning("kept reports wait", reason=error.message)
                if not error.about_everything:
                    return  # those have another chance when the next process starts
                await sleep(backoff.next(), stopping)

    def _keep(self) -> None:
        if self._spool is None or not len(self):
            return
        try:
            self._spool.write([*self._sending, *self._waiting], self._source.identity)
            self._kept = True
        except (OSError, TypeError, ValueError) as error:  # a full disk, most likely: memory still has them
            log.warning("reports can not be kept on disk", reason=str(error))


async def send(deliver: Deliver, reports: list[Report]) -> tuple[list[Report], DatabaseError | None]:
    """Those that must wait, and why. Raises what would hit any report alike."""
    try:
        stale = await deliver(reports)
    except Exception as error:
        if isinstance(error, DatabaseError) and error.about_everything:
            raise
        if len(reports) > 1:
            return await _one_by_one(deliver, reports)
        if isinstance(error, DatabaseError) and not error.about_values:
            return reports, error
        return await _refused(deliver, reports[0], error)
    if stale:
        log.warning("the lease was lost before the report came", tasks=[str(id) for id in stale[:10]])
    return [], None


async def _one_by_one(deliver: Deliver, reports: list[Report]) -> tuple[list[Report], DatabaseError | None]:
    """One report that the database does not take must not take its batch along."""
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
    """Its outcome can not be stored: the task fails with that reason instead."""
    if isinstance(report.outcome, Fail) and report.outcome.error.startswith(UNSTORABLE):
        log.error("a report was refused", task_id=str(report.task.id), error=storable(str(error)))
        return [], None
    fail = Fail(f"{UNSTORABLE}: {storable(str(error))}", retry=False)
    return await send(deliver, [report._replace(outcome=fail)])
