"""Progress of running tasks: the latest value of each, sent together twice a second."""

from __future__ import annotations

from uuid import UUID

from shiftboss.lifecycle import Service, sleep
from shiftboss.log import get_logger
from shiftboss.worker.source import Source

log = get_logger(__name__)


class ProgressSender(Service):
    """Sends progress. `note` only writes into a dict, so handlers may report as often as they like."""

    EVERY = 0.5

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._latest: dict[int, tuple[UUID, int, str | None]] = {}

    def note(self, lease: int, id: UUID, percent: int, message: str | None) -> None:
        self._latest[lease] = (id, percent, message)

    def forget(self, lease: int) -> None:
        self._latest.pop(lease, None)

    async def run(self) -> None:
        self.ready()
        while not await sleep(self.EVERY, self.stopping):
            if self._latest:
                await self._send()

    async def _send(self) -> None:
        latest, self._latest = self._latest, {}
        ids, percents, messages = zip(*latest.values(), strict=True)
        try:
            await self._source.progress(list(zip(ids, latest, strict=True)), percents, messages)
        except Exception as error:  # progress is optional: it must not end the worker
            log.warning("cannot send progress", reason=str(error))
