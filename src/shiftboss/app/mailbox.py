"""Waiting for results: one LISTEN connection for all waiters, with polling as a fallback."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import UUID

from shiftboss.db import Database
from shiftboss.db.listen import listen
from shiftboss.lifecycle import sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseUnavailable, NotFound, ResultTimeout
from shiftboss.model.task import Result, State

log = get_logger(__name__)

CHANNEL = "shiftboss_results"
LOOK_SECONDS = 0.01
# Watch at most this many tasks at a time: watching updates rows that workers want to claim.
AT_ONCE = 200


class Mailbox:
    """Delivers the results of tasks to all waiters of one event loop."""

    def __init__(self, db: Database, listen_url: str | None = None, poll_seconds: float = 1.0) -> None:
        self._db = db
        self._url = listen_url or db.url
        self._poll = poll_seconds
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None

    async def wait(self, ids: Sequence[UUID], timeout: float | None = None) -> list[Result]:
        """Wait until all tasks have ended and return their results in the order of `ids`."""
        ends = None if timeout is None else time.monotonic() + timeout
        results: list[Result] = []
        for start in range(0, len(ids), AT_ONCE):
            results += await self._wait(ids[start : start + AT_ONCE], timeout or 0, ends)
        return results

    async def _wait(self, ids: Sequence[UUID], timeout: float, ends: float | None) -> list[Result]:
        done: dict[UUID, Result] = {}
        with self._waits(ids) as woken:
            while True:
                woken.clear()
                left = [id for id in ids if id not in done]
                found = await self._look(left)
                done |= {result.id: result for result in found if result.done}
                if len(done) == len(set(ids)):
                    return [done[id] for id in ids]
                pause = self._poll if ends is None else min(self._poll, ends - time.monotonic())
                if pause <= 0:
                    raise ResultTimeout(next(id for id in left if id not in done), timeout)
                if await sleep(pause, woken) and len(left) > 1:  # collect tasks that end together
                    await asyncio.sleep(LOOK_SECONDS)

    async def states(self, id: UUID, every: float) -> AsyncIterator[State]:
        """Yield a task's state `every` seconds and when it ends. The last state is final."""
        with self._waits([id]) as woken:
            while True:
                woken.clear()
                if await self._look([id]):
                    state = await self._db.tasks.state(id)
                    if state is not None:
                        yield state
                        if state.done:
                            return
                await sleep(every, woken)

    async def _look(self, ids: Sequence[UUID]) -> list[Result]:
        """Return the current results of the tasks, or nothing while the database is unavailable."""
        try:
            found = await self._db.tasks.watch(ids)
        except DatabaseUnavailable as error:
            if self._db.closed:
                raise
            log.warning("cannot read results, trying again", reason=error.message)
            return []
        _require(ids, found)
        return found

    @contextmanager
    def _waits(self, ids: Sequence[UUID]) -> Iterator[asyncio.Event]:
        woken = asyncio.Event()
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._listen(), name="mailbox")
        for id in ids:
            self._waiting[str(id)].add(woken)
        try:
            yield woken
        finally:
            for id in ids:
                self._waiting[str(id)].discard(woken)
                if not self._waiting[str(id)]:
                    del self._waiting[str(id)]

    async def _listen(self) -> None:
        async for notice in listen(self._url, [CHANNEL]):
            if notice.payload:
                wake = self._waiting.get(notice.payload, set())
            else:  # the connection was restored: notifications may have been missed
                wake = {event for events in self._waiting.values() for event in events}
            for event in wake:
                event.set()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
            self._listener = None


def _require(ids: Sequence[UUID], found: Sequence[Result]) -> None:
    missing = set(ids) - {result.id for result in found}
    if missing:
        raise NotFound(
            f"there is no task {min(missing)}",
            hint="it may have been pruned, or its transaction is not committed yet",
        )
