"""Group commit: concurrent requests are processed in one batch, and each gets its own answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from shiftboss.model.errors import DatabaseUnavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class GroupCommit(Generic[Item, Answer]):
    """Collects items while `work` processes the previous batch. `work` returns one answer per item, in order.

    A batch that fails is processed again item by item, so that an invalid item does not affect the others.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        *,
        limit: int = 1000,
        gather: float = 0.002,
    ) -> None:
        self._work = work
        self._limit = limit
        self._gather = gather
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), name="batcher")
        return await future

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(self._gather)
                size = min(len(self._waiting), self._limit)
                await self._do([self._waiting.popleft() for _ in range(size)])
        finally:
            self._task = None

    async def _do(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._work([item for item, _ in batch])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, DatabaseUnavailable):
                for one in batch:
                    await self._do([one])
                return
            for _, future in batch:
                if not future.done():  # the caller may have been cancelled
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
