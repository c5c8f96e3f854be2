"""Stores the parts that tasks emit: collected for a short time, then stored in one statement."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from shiftboss.model.step import Part
from shiftboss.worker.sender import BatchSender, store

if TYPE_CHECKING:
    from shiftboss.worker.steps import StepLink

#: How long a part waits for others.
COLLECT_SECONDS = 0.05
#: A task with this many parts that are not stored yet waits for the database.
MOST_UNSENT = 1000


class PartWriter:
    """Stores the parts of all attempts of a worker, in order for each attempt."""

    def __init__(self, link: StepLink) -> None:
        send = partial(store, link.append, lambda part: part.lease)
        self._sender: BatchSender[Part, None] = BatchSender("store stream parts", send, COLLECT_SECONDS)
        self._places: Counter[int] = Counter()
        self._unsent: dict[int, set[asyncio.Future[None]]] = {}
        self._failed: dict[int, BaseException] = {}
        self.close = self._sender.close

    async def emit(self, part: Part) -> None:
        """Accept a part. Returns at once, unless very many are not stored yet."""
        lease = part.lease
        self._raise_failure(lease)
        self._places[lease] += 1
        done = self._sender.put(part._replace(place=self._places[lease]))
        unsent = self._unsent.setdefault(lease, set())
        unsent.add(done)
        done.add_done_callback(partial(self._on_stored, lease))
        if len(unsent) > MOST_UNSENT:
            await self.flush(lease)

    async def flush(self, lease: int) -> None:
        """Wait until all parts of this attempt are stored. Raises if one could not be stored."""
        if unsent := self._unsent.get(lease):
            self._sender.hurry()
            await asyncio.wait(unsent)
        if self._failed:
            self._raise_failure(lease)

    def forget(self, lease: int) -> None:
        """Forget an attempt that has ended."""
        if self._places.pop(lease, 0):
            self._unsent.pop(lease, None)
            self._failed.pop(lease, None)

    def _on_stored(self, lease: int, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if (unsent := self._unsent.get(lease)) is not None:
            unsent.discard(done)
            if error is not None:
                self._failed[lease] = error

    def _raise_failure(self, lease: int) -> None:
        if lease in self._failed:
            raise self._failed[lease]
