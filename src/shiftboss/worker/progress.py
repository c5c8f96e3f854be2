"""Progress of running tasks: the latest word of each, sent together a few times a second."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from shiftboss.lifecycle import Service, sleep
from shiftboss.log import get_logger
from shiftboss.worker.source import Source

log = get_logger(__name__)


class Word(NamedTuple):
    id: UUID
    percent: int
    message: str | None


class Progress(Service):
    """A handler's `ctx.progress` only writes into a dict, so it may be called as often as one likes."""

    EVERY = 0.5

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._latest: dict[int, Word] = {}

    def note(self, lease: int, id: UUID, percent: int, message: str | None) -> None:
        self._latest[lease] = Word(id, percent, message)

    def forget(self, lease: int) -> None:
        self._latest.pop(lease, None)

    async def run(self) -> None:
        self.ready()
        while not await sleep(self.EVERY, self.stopping):
            if self._latest:
                await self._send()

    async def _send(self) -> None:
        latest, self._latest = self._latest, {}
        words = list(latest.values())
        try:
            await self._source.progress(
                [(word.id, lease) for lease, word in latest.items()],
                [word.percent for word in words],
                [word.message for word in words],
            )
        except Exception as error:  # a nicety: it must not end anything
            log.warning("progress could not be shown", reason=str(error))
