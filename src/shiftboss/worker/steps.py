"""Stores the steps of all attempts of a worker, many in one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Protocol
from uuid import UUID

from shiftboss.model.errors import DatabaseError
from shiftboss.model.step import LeaseLost, Loaded, Part, Step
from shiftboss.model.task import Claimed
from shiftboss.worker.parts import PartWriter
from shiftboss.worker.sender import BatchSender, store
from shiftboss.worker.threads import reject, resolve

#: A claimed task, and the version of its handler.
Begun = tuple[Claimed, str | None]


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
    """Loads and stores steps for all attempts of a worker, in batches.

    If the database is away, an attempt waits until its result is stored or its lease is lost. `where` is what
    `link` writes to.
    """

    def __init__(self, link: StepLink, where: object) -> None:
        self._link = link
        self.where = where
        self._loads: BatchSender[Begun, Loaded] = BatchSender("load steps", self._load)
        self._stores: BatchSender[Step, None] = BatchSender("store steps", partial(store, link.store, id))
        self._parts = PartWriter(link)
        self.emit, self.flush, self.forget = self._parts.emit, self._parts.flush, self._parts.forget

    async def load(self, task: Claimed, version: str | None = None) -> Loaded:
        return await self._loads.put((task, version))

    async def store(self, step: Step) -> None:
        await self._stores.put(step)

    async def close(self) -> None:
        for part in (self._parts, self._loads, self._stores):
            await part.close()

    async def _load(self, batch: list[tuple[Begun, asyncio.Future[Loaded]]]) -> None:
        try:
            found = await self._link.begin([(task.id, task.lease, version) for (task, version), _ in batch])
        except DatabaseError as error:
            if not error.refused:
                raise
            for _, done in batch:
                reject(done, error)
            return
        for (task, _), done in batch:
            if task.id in found:
                resolve(done, found[task.id])
            else:
                reject(done, LeaseLost(f"the lease of task {task.id} is gone"))
