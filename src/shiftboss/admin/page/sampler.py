"""One reading for all open pages: read once, only while somebody looks, told only when the text changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any

import structlog
from markupsafe import Markup

from shiftboss.admin.stream import Hub
from shiftboss.lifecycle import Service
from shiftboss.model.errors import ShiftbossError

log = structlog.get_logger()

Render = Callable[[Any, bool], Markup]
GAP = 0.5  # seconds between two readings of one thing, however many changes are pushed


class Reading:
    """Something pages show. `every` says, from the last value, in how many seconds to look again."""

    def __init__(
        self, read: Callable[[], Awaitable[Any]], every: Callable[[Any], float], wakes: frozenset[str]
    ) -> None:
        self._read, self._every = read, every
        self.wakes = wakes
        self.value: Any = None
        self._known = False
        self._lock = asyncio.Lock()
        self._texts: dict[tuple[Render, bool], Markup] = {}
        self._watchers: set[Callable[[], None]] = set()
        self._dirty = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def first(self) -> None:
        """Have a value: the one that is kept for others, else a new one."""
        async with self._lock:
            if not self._known or not self._watchers:
                await self._refresh()

    def text(self, render: Render, may: bool) -> Markup:
        """What this looks like, made once for all who see the same."""
        if (render, may) not in self._texts:
            self._texts[render, may] = render(self.value, may)
        return self._texts[render, may]

    def watch(self, watcher: Callable[[], None]) -> None:
        self._watchers.add(watcher)
        if self._loop is None:
            self._loop = asyncio.create_task(self._follow(), name="reading")

    def leave(self, watcher: Callable[[], None]) -> None:
        self._watchers.discard(watcher)
        if not self._watchers:
            self.stop()

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None

    def touch(self) -> None:
        self._dirty.set()

    @property
    def watched(self) -> bool:
        return bool(self._watchers)

    async def _refresh(self) -> None:
        self.value = await self._read()
        self._known = True
        self._texts.clear()

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), self._every(self.value))
            self._dirty.clear()
            try:
                async with self._lock:
                    await self._refresh()
            except ShiftbossError as error:  # the database is away: the pages keep what they have
                log.warning("reading failed", reason=error.message)
            else:
                for watcher in tuple(self._watchers):
                    watcher()
            await asyncio.sleep(GAP)


class Sampler(Service):
    """The readings that are looked at, by key, and the ear that wakes them."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub
        self._readings: dict[Hashable, Reading] = {}

    def reading(
        self,
        key: Hashable,
        read: Callable[[], Awaitable[Any]],
        every: float | Callable[[Any], float] = 5.0,
        wakes: frozenset[str] = frozenset(),
    ) -> Reading:
        """The one reading under this key."""
        self._forget()
        if key not in self._readings:
            pace = every if callable(every) else lambda value: every
            self._readings[key] = Reading(read, pace, wakes)
        return self._readings[key]

    def touch(self, kind: str | None = None) -> None:
        """Something changed: what shows it looks again now."""
        for reading in self._readings.values():
            if reading.watched and (kind is None or kind in reading.wakes):
                reading.touch()

    def _forget(self) -> None:
        if len(self._readings) > 200:  # filters and details that nobody looks at any more
            self._readings = {key: one for key, one in self._readings.items() if one.watched}

    async def run(self) -> None:
        self.ready()
        ear = asyncio.create_task(self._hear(), name="page ear")
        await self.stopping.wait()
        ear.cancel()
        for reading in self._readings.values():
            reading.stop()

    async def _hear(self) -> None:
        with self._hub.subscribe() as changes:
            while True:
                if (change := await changes.next(60.0)) is not None:
                    self.touch(change.kind)
