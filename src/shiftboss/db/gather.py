"""Enqueues single tasks together while other enqueues of this process are in progress.

An enqueue that meets no other is not delayed. With many at a time, each transaction stores all that have
arrived since the last one began, which costs far less than a transaction for each.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from shiftboss.db.connection import again
from shiftboss.db.encoding import columns_of, fits_arrays, insert_many
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import Enqueued, NewTask

AT_ONCE = 2
MOST = 500
Waiting = tuple[NewTask, dict[str, Any], asyncio.Future[Enqueued]]
Store = Callable[[str, list[Any]], Awaitable[None]]
Alone = Callable[[NewTask], Awaitable[Enqueued]]


class Gatherer:
    """Runs up to two enqueues at a time. Tasks that arrive meanwhile are stored together."""

    def __init__(self, store: Store, alone: Alone) -> None:
        self._store, self._alone = store, alone
        self._waiting: dict[tuple[str, ...], list[Waiting]] = {}
        self._running = 0
        self._sending: set[asyncio.Task[None]] = set()

    async def enqueue(self, task: NewTask) -> Enqueued:
        if not fits_arrays(task):
            return await self._alone(task)
        if self._running < AT_ONCE:
            self._running += 1
            try:
                return await self._alone(task)
            finally:
                self._next()
        columns = columns_of(task)
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tuple(columns), []).append((task, columns, future))
        return await future

    def _next(self) -> None:
        self._running -= 1
        while self._waiting and self._running < AT_ONCE:
            names = next(iter(self._waiting))
            some = self._waiting.pop(names)
            if some[MOST:]:
                self._waiting[names] = some[MOST:]
            if some := [one for one in some[:MOST] if not one[2].done()]:  # without those that were cancelled
                self._running += 1
                sending = asyncio.create_task(self._send(some), name="enqueue")
                self._sending.add(sending)
                sending.add_done_callback(self._sending.discard)

    async def _send(self, some: Sequence[Waiting]) -> None:
        try:
            await self._store_all(some)
        finally:
            self._next()
            for _, _, future in some:
                future.cancel()  # does nothing to those that have their result

    async def _store_all(self, some: Sequence[Waiting]) -> None:
        try:
            await again(lambda: self._store(*insert_many([columns for _, columns, _ in some])))
        except DatabaseError as error:
            for task, _, future in some:
                await self._settle(task, future, error)
            return
        for _, columns, future in some:
            if not future.done():
                future.set_result(Enqueued(columns["id"], True))

    async def _settle(self, task: NewTask, future: asyncio.Future[Enqueued], error: DatabaseError) -> None:
        """Give a task of a rejected transaction its own result: one invalid task rejects all of them."""
        if future.done():
            return
        try:
            if error.about_everything:
                raise copy.copy(error)
            made = await self._alone(task)
        except Exception as reason:
            if not future.done():
                future.set_exception(reason)
        else:
            if not future.done():
                future.set_result(made)
