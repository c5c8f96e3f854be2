"""The one lifecycle: something that loops, says when it is ready, and stops when asked."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from shiftboss.log import get_logger

log = get_logger(__name__)


class Service(ABC):
    """Subclasses write `run`: call `self.ready()` when up, return soon after `self.stopping` is set.

    `start` returns when the service is ready and raises what `run` raised before that. `stop` may be called
    at any time, any number of times; it raises nothing that `run` raised, `wait` does.
    """

    #: How long `stop` waits for `run` to return before it is cancelled.
    grace: float = 10.0

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run(self) -> None: ...

    def ready(self) -> None:
        self._ready.set()

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def start(self) -> None:
        """Start once; a stopped service can be started again."""
        if self.running:
            return
        if self._task is not None:  # a stop that was asked for before the first start stands
            self.stopping.clear()
        self._ready.clear()
        self._task = asyncio.create_task(self._guarded(), name=type(self).__name__)
        up = asyncio.create_task(self._ready.wait())
        await asyncio.wait({self._task, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._task.done():
            self._task.result()

    async def _guarded(self) -> None:
        try:
            await self.run()
        except Exception:
            if self._ready.is_set():
                log.exception("service failed", service=type(self).__name__)
            raise

    def watch(self, call: Callable[[Self], None]) -> None:
        """Have `call` called if `run` ends though nobody asked it to."""
        assert self._task is not None, "start first"
        self._task.add_done_callback(lambda _: None if self.stopping.is_set() else call(self))

    def request_stop(self) -> None:
        """Ask to stop without waiting."""
        self.stopping.set()

    async def stop(self) -> None:
        """Ask to stop, wait for the grace time, then cancel."""
        self.request_stop()
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=self.grace)
        if not done:
            self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._task

    async def wait(self) -> None:
        """Until `run` ends; raises what it raised."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def sleep(seconds: float, *wakers: asyncio.Event) -> bool:
    """Sleep, or wake when one of the events is set; True if one was."""
    if any(waker.is_set() for waker in wakers):
        return True
    if len(wakers) == 1:  # on the way of every task: a third of the cost of the way below
        try:
            async with asyncio.timeout(seconds):
                return await wakers[0].wait()
        except TimeoutError:
            return False
    waits = [asyncio.ensure_future(waker.wait()) for waker in wakers]
    try:
        done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for wait in waits:
            wait.cancel()


async def ticks(seconds: float, stopping: asyncio.Event, jitter: float = 0.1) -> AsyncIterator[None]:
    """One tick at once, then one every `seconds` give or take the jitter, until stopping."""
    while not stopping.is_set():
        yield
        await sleep(seconds * random.uniform(1 - jitter, 1 + jitter), stopping)
