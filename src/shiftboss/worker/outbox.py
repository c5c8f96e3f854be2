"""Reports on their way out: delivered in batches, kept on disk while nobody takes them."""

from __future__ import annotations

import asyncio

import structlog

from shiftboss.lifecycle import Backoff, Service, sleep
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, ShiftbossError
from shiftboss.model.task import Fail, Report
from shiftboss.worker.source import Source
from shiftboss.worker.spool import Spool

log = structlog.get_logger()


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
        self.stale = 0

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

    async def flushed(self, timeout: float) -> bool:
        """Wait until all is delivered; False: not in that time."""
        return len(self) == 0 or await sleep(timeout, self._empty)

    async def run(self) -> None:
        self.ready()
        backoff = Backoff()
        while not (self.stopping.is_set() and not self._waiting):
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                self._sending, self._waiting = self._waiting, []
                if not await self._deliver(backoff):
                    return
            self._empty.set()

    async def _deliver(self, backoff: Backoff) -> bool:
        """Until it is taken; False when we must stop before that (the spool has it then)."""
        while True:
            try:
                await self._send(self._sending)
            except DatabaseUnavailable as error:
                self._keep()
                log.warning("reports wait", reports=len(self), reason=error.message)
                if await sleep(backoff.next(), self.stopping):
                    self._keep()
                    return False
                self._sending += self._waiting
                self._waiting = []
            else:
                self._sending = []
                if backoff.failures:
                    backoff.reset()
                    log.info("reports delivered after all")
                    if self._spool is not None:
                        self._spool.clear()
                return True

    async def _send(self, reports: list[Report]) -> None:
        try:
            stale = await self._source.report(reports)
        except DatabaseUnavailable:
            raise
        except DatabaseError as error:
            await self._one_by_one(reports, error)
            return
        if stale:
            self.stale += len(stale)
            log.warning("the lease was lost before the report came", tasks=[str(id) for id in stale[:10]])

    async def _one_by_one(self, reports: list[Report], error: ShiftbossError) -> None:
        """One report that the database refuses must not take its batch along."""
        if len(reports) > 1:
            for report in reports:
                await self._send([report])
            return
        [report] = reports
        if isinstance(report.outcome, Fail):
            log.error("a report was refused", task_id=str(report.task.id), error=error.message)
            return
        refused = Fail(f"the result could not be stored: {error.message}", retry=False)
        await self._send([report._replace(outcome=refused)])

    def _keep(self) -> None:
        if self._spool is None:
            return
        try:
            self._spool.write([*self._sending, *self._waiting], self._source.identity)
        except OSError as error:  # a full disk, most likely the database's own trouble: memory still has them
            log.warning("reports can not be kept on disk", reason=str(error))
