"""Stores the steps of all attempts of a worker, many in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol
from uuid import UUID

from shiftboss.lifecycle import Backoff
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, TasksLocked
from shiftboss.model.step import LeaseLost, Loaded, Part, Step
from shiftboss.model.task import Claimed
from shiftboss.worker.parts import PartWriter

log = get_logger(__name__)

LONGEST_PAUSE = 2.0
Pending = list[tuple[Step, asyncio.Future[None]]]


class StepStore(Protocol):
    """Loads and stores the steps of an attempt."""

    @property
    def where(self) -> object:
        """What stores the steps. Extensions that write to the same place can attach to a step."""
        ...

    async def load(self, task: Claimed, version: str | None) -> Loaded:
        """Return the steps of earlier attempts. A new task is bound to this version."""
        ...

    async def store(self, step: Step) -> None:
        """Return when the result is durable. Raises LeaseLost if this attempt lost the task."""
        ...

    async def emit(self, part: Part) -> None: ...

    async def flush(self, lease: int) -> None:
        """Return when all parts that were emitted under this lease are stored."""
        ...


class StepLink(Protocol):
    """Sends steps and parts in batches, to the database or to the source of the tasks.

    All methods but `begin` return the ids of tasks whose lease is stale, and can raise TasksLocked.
    """

    async def begin(self, tasks: Sequence[tuple[UUID, int, str | None]]) -> dict[UUID, Loaded]: ...

    async def store(self, steps: Sequence[Step]) -> list[UUID]: ...

    async def append(self, parts: Sequence[Part]) -> list[UUID]: ...


class StepWriter:
    """Loads and stores steps for all attempts of a worker. While one batch is sent, the next one collects.

    If the database is away, an attempt waits until its result is stored or its lease is lost. `where` is what
    `link` writes to.
    """

    def __init__(self, link: StepLink, where: object) -> None:
        self._link = link
        self.where = where
        self._loads: list[tuple[Claimed, str | None, asyncio.Future[Loaded]]] = []
        self._stores: Pending = []
        self._loading: asyncio.Task[None] | None = None
        self._storing: asyncio.Task[None] | None = None
        self._parts = PartWriter(link)
        self.emit = self._parts.emit

    async def flush(self, lease: int) -> None:
        if self._parts.unsent(lease):
            await self._parts.flush(lease)

    def forget(self, lease: int) -> None:
        """Forget an attempt that has ended."""
        self._parts.forget(lease)

    async def load(self, task: Claimed, version: str | None = None) -> Loaded:
        done: asyncio.Future[Loaded] = asyncio.get_running_loop().create_future()
        self._loads.append((task, version, done))
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load(), name="load steps")
        return await done

    async def store(self, step: Step) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stores.append((step, done))
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store(), name="store steps")
        await done

    async def close(self) -> None:
        await self._parts.close()
        for part in (self._loading, self._storing):
            if part is not None:
                part.cancel()
                with suppress(asyncio.CancelledError):
                    await part

    async def _load(self) -> None:
        backoff = Backoff(maximum=LONGEST_PAUSE)
        while self._loads:
            batch, self._loads = self._loads, []
            batch = [one for one in batch if not one[2].done()]
            try:
                found = await self._link.begin([(task.id, task.lease, version) for task, version, _ in batch])
            except DatabaseError as error:
                if error.refused:
                    _reject(error, [done for _, _, done in batch])
                    continue
                self._loads += batch
                await _pause(backoff, "cannot load steps, retrying", error)
                continue
            for task, _, done in batch:
                if not done.done():
                    _begin(done, task, found.get(task.id))

    async def _store(self) -> None:
        backoff = Backoff(maximum=LONGEST_PAUSE)
        while self._stores:
            batch, self._stores = self._stores, []
            batch = [(step, done) for step, done in batch if not done.done()]
            if not batch:
                continue
            try:
                await self._send(batch)
                backoff.reset()
            except DatabaseError as error:
                self._stores += [pair for pair in batch if not pair[1].done()]
                await _pause(backoff, "cannot store steps, retrying", error)

    async def _send(self, batch: Pending) -> None:
        """Store a batch. Raises errors that a retry may solve; the futures of those steps stay pending."""
        try:
            stale = await self._link.store([step for step, _ in batch])
        except TasksLocked as error:
            _settle([pair for pair in batch if pair[0].task_id not in error.ids], error.stale)
            raise
        except DatabaseError as error:
            if not error.about_values and not error.refused:
                raise
            if len(batch) == 1:  # the result of this step cannot be stored
                _reject(error, [batch[0][1]])
                return
            for pair in batch:
                await self._send([pair])
            return
        _settle(batch, stale)


def _begin(done: asyncio.Future[Loaded], task: Claimed, found: Loaded | None) -> None:
    if found is None:
        done.set_exception(LeaseLost(f"the lease of task {task.id} is gone"))
    else:
        done.set_result(found)


def _settle(batch: Pending, stale: Sequence[UUID]) -> None:
    lost = set(stale)
    for step, done in batch:
        if done.done():
            continue
        if step.task_id in lost:
            done.set_exception(LeaseLost(f"the lease of task {step.task_id} is gone"))
        else:
            done.set_result(None)


def _reject(error: Exception, futures: Sequence[asyncio.Future[Any]]) -> None:
    for done in futures:
        if not done.done():
            done.set_exception(error)


async def _pause(backoff: Backoff, what: str, error: DatabaseError) -> None:
    log.warning(what, reason=error.message)
    await asyncio.sleep(backoff.next())
