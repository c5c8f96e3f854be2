"""The lifecycle of a service: it starts, reports that it is ready, and stops on request."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

from shiftboss.log import get_logger

log = get_logger(__name__)


class Service(ABC):
    """Base class of services. Subclasses implement `run`.

    `run` calls `self.ready()` when it is up, and returns soon after `self.stopping` is set. `start` returns
    when the service is ready, and raises what `run` raised before that. `stop` may be called at any time and
    more than once. It does not raise what `run` raised; `wait` does.
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
        """Start the service unless it runs. A stopped service can be started again."""
        if self.running:
            return
        if self._task is not None:  # a stop requested before the first start stays in effect
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
        """Call `call` if `run` ends without a request to stop."""
        assert self._task is not None, "start first"
        self._task.add_done_callback(lambda _: None if self.stopping.is_set() else call(self))

    def request_stop(self) -> None:
        """Request a stop without waiting for it."""
        self.stopping.set()

    async def stop(self) -> None:
        """Request a stop, wait for the grace time, then cancel."""
        self.request_stop()
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=self.grace)
        if not done:
            self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._task

    async def wait(self) -> None:
        """Wait until `run` ends, and raise what it raised."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def sleep(seconds: float, *wakers: asyncio.Event) -> bool:
    """Sleep until the time is over or one of the events is set. Return whether one was set."""
    if any(waker.is_set() for waker in wakers):
        return True
    if len(wakers) == 1:  # used for every claim; this costs a third of the general case below
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


async def first_of(*works: Awaitable[Any]) -> asyncio.Future[Any]:
    """Run all until one has ended, cancel the others, and return the one that ended."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ticks(seconds: float, stopping: asyncio.Event, jitter: float = 0.1) -> AsyncIterator[None]:
    """Yield at once, then every `seconds` plus or minus the jitter, until `stopping` is set."""
    while not stopping.is_set():
        yield
        await sleep(seconds * random.uniform(1 - jitter, 1 + jitter), stopping)
