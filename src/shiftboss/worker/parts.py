"""Stores the parts that tasks emit: collected for a short time, then stored in one statement."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from shiftboss.lifecycle import Backoff
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, TasksLocked
from shiftboss.model.step import LeaseLost, Part

if TYPE_CHECKING:
    from shiftboss.worker.steps import StepLink

log = get_logger(__name__)

#: How long a part waits for others.
COLLECT_SECONDS = 0.05
#: A task with this many parts that are not stored yet waits for the database.
MOST_UNSENT = 1000
LONGEST_PAUSE = 2.0


class PartWriter:
    """Stores the parts of all attempts of a worker, in order for each attempt."""

    def __init__(self, link: StepLink) -> None:
        self._link = link
        self._parts: list[Part] = []
        self._unsent: Counter[int] = Counter()
        self._places: Counter[int] = Counter()
        self._failed: dict[int, BaseException] = {}
        self._hurry = asyncio.Event()
        self._progress = asyncio.Condition()
        self._sending: asyncio.Task[None] | None = None

    async def emit(self, part: Part) -> None:
        """Accept a part. Returns at once, unless very many are not stored yet."""
        self._raise_failure(part.lease)
        self._places[part.lease] += 1
        self._parts.append(part._replace(place=self._places[part.lease]))
        self._unsent[part.lease] += 1
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name="parts")
        if self._unsent[part.lease] > MOST_UNSENT:
            await self.flush(part.lease)

    async def flush(self, lease: int) -> None:
        """Wait until all parts of this attempt are stored. Raises if one could not be stored."""
        async with self._progress:
            while self._unsent[lease] > 0:
                self._hurry.set()
                await self._progress.wait()
        del self._unsent[lease]
        self._raise_failure(lease)

    def forget(self, lease: int) -> None:
        self._failed.pop(lease, None)
        self._places.pop(lease, None)

    def unsent(self, lease: int) -> bool:
        return lease in self._unsent or lease in self._failed

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending

    def _raise_failure(self, lease: int) -> None:
        if lease in self._failed:
            raise self._failed[lease]

    async def _send(self) -> None:
        backoff = Backoff(maximum=LONGEST_PAUSE)
        while self._parts:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), COLLECT_SECONDS)
            self._hurry.clear()
            batch, self._parts = self._parts, []
            try:
                left = await self._store(batch)
                backoff.reset()
            except DatabaseError as error:
                log.warning("cannot store stream parts, retrying", reason=error.message)
                self._parts = batch + self._parts
                await asyncio.sleep(backoff.next())
                continue
            self._parts = left + self._parts
            await self._settle([part for part in batch if part not in left] if left else batch)
            if left:
                await asyncio.sleep(backoff.next())

    async def _store(self, batch: list[Part]) -> list[Part]:
        """Store parts. Return those to retry, because another session has locked their task."""
        try:
            stale = await self._link.append(batch)
        except TasksLocked as error:
            self._lose([part for part in batch if part.task_id in error.stale])
            return [part for part in batch if part.task_id in error.ids]
        except DatabaseError as error:
            if not error.about_values and not error.refused:
                raise
            leases = {part.lease for part in batch}
            if len(leases) == 1:
                self._failed[leases.pop()] = error
                return []
            for lease in leases:
                await self._store([part for part in batch if part.lease == lease])
            return []
        self._lose([part for part in batch if part.task_id in set(stale)])
        return []

    def _lose(self, parts: list[Part]) -> None:
        for part in parts:
            self._failed[part.lease] = LeaseLost(f"the lease of task {part.task_id} is gone")

    async def _settle(self, parts: list[Part]) -> None:
        async with self._progress:
            self._unsent.subtract(part.lease for part in parts)
            self._progress.notify_all()
