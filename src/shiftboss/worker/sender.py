"""Sends what attempts store in batches: while one batch is sent, the next one collects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from shiftboss.lifecycle import Backoff
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, TasksLocked
from shiftboss.model.step import LeaseLost
from shiftboss.worker.threads import reject, resolve

log = get_logger(__name__)

LONGEST_PAUSE = 2.0
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class BatchSender(Generic[Item, Answer]):
    """Sends items with `send`, which answers their futures. Items that it does not answer are sent again.

    If the database is away, items wait until it is back or nobody awaits them any more.
    """

    def __init__(
        self,
        what: str,
        send: Callable[[list[tuple[Item, asyncio.Future[Answer]]]], Awaitable[None]],
        collect: float = 0.0,
    ) -> None:
        """`send` raises DatabaseError if a retry may help. Each batch collects for `collect` seconds."""
        self._what, self._send, self._collect = what, send, collect
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._hurry = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def put(self, item: Item) -> asyncio.Future[Answer]:
        """Send an item with the next batch. Return the future of its answer."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._sending is None or self._sending.done():
            # It serves all attempts, so it does not run with the context variables of one.
            self._sending = asyncio.create_task(self._run(), name=self._what, context=Context())
        return done

    def hurry(self) -> None:
        """Send the next batch at once."""
        self._hurry.set()

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending

    async def _run(self) -> None:
        backoff = Backoff(maximum=LONGEST_PAUSE)
        while self._waiting:
            if self._collect:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), self._collect)
                self._hurry.clear()
            batch, self._waiting = [pair for pair in self._waiting if not pair[1].done()], []
            try:
                if batch:
                    await self._send(batch)
                backoff.reset()
            except DatabaseError as error:
                self._waiting = [pair for pair in batch if not pair[1].done()] + self._waiting
                log.warning(f"cannot {self._what}, retrying", reason=error.message)
                await asyncio.sleep(backoff.next())


class Owned(Protocol):
    """Something that belongs to a task."""

    @property
    def task_id(self) -> UUID: ...


OwnedItem = TypeVar("OwnedItem", bound=Owned)


async def store(
    call: Callable[[Sequence[OwnedItem]], Awaitable[list[UUID]]],
    apart: Callable[[OwnedItem], Hashable],
    batch: list[tuple[OwnedItem, asyncio.Future[None]]],
) -> None:
    """Store a batch with `call`, which returns the tasks with a stale lease.

    A rejected batch is stored in the groups that `apart` makes, so that only the group at fault fails.
    """
    try:
        stale = await call([item for item, _ in batch])
    except TasksLocked as error:
        _settle([pair for pair in batch if pair[0].task_id not in error.ids], error.stale)
        raise
    except DatabaseError as error:
        if not error.about_values and not error.refused:
            raise
        groups = dict.fromkeys(apart(item) for item, _ in batch)
        for group in groups if len(groups) > 1 else ():
            await store(call, apart, [pair for pair in batch if apart(pair[0]) == group])
        for _, done in batch if len(groups) == 1 else ():
            reject(done, error)
        return
    _settle(batch, stale)


def _settle(batch: list[tuple[OwnedItem, asyncio.Future[None]]], stale: Sequence[UUID]) -> None:
    lost = set(stale)
    for item, done in batch:
        if item.task_id in lost:
            reject(done, LeaseLost(f"the lease of task {item.task_id} is gone"))
        else:
            resolve(done, None)
