"""Share one read of the database among all open pages that show the same data.

A channel reads while at least one page watches it, and notifies the pages if something changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, suppress

from shiftboss.extensions.admin.page.render import Piece
from shiftboss.extensions.admin.stream import Change, Hub
from shiftboss.log import get_logger
from shiftboss.model.errors import ShiftbossError

log = get_logger(__name__)

Look = tuple[list[Piece], float]
"""The pieces of a page, and the number of seconds until the next read."""
Read = Callable[[], Awaitable[Look]]
GAP = 0.5  # minimum seconds between two reads of a channel, however many changes arrive


class Channel:
    """The pieces that several open pages show."""

    def __init__(self, read: Read, wakes: frozenset[str]) -> None:
        self._read, self.wakes = read, wakes
        self.pieces: dict[str, Piece] = {}
        self._changed: set[asyncio.Event] = set()
        self._dirty = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the pieces change."""
        changed = asyncio.Event()
        self._changed.add(changed)
        if self._loop is None:
            self._dirty.set()
            self._loop = asyncio.create_task(self._follow(), name="page channel")
        elif self.pieces:
            changed.set()
        try:
            yield changed
        finally:
            self._changed.discard(changed)
            if not self._changed:
                self.stop()

    @property
    def watched(self) -> bool:
        return bool(self._changed)

    def touch(self) -> None:
        self._dirty.set()

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            self._loop, self.pieces = None, {}

    async def _follow(self) -> None:
        pause = 0.0
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._dirty.wait(), pause)
            self._dirty.clear()
            pause = await self._look() or max(pause, 5.0)
            await asyncio.sleep(GAP)

    async def _look(self) -> float | None:
        try:
            pieces, pause = await self._read()
        except ShiftbossError as error:
            # The database is unreachable, or the object was deleted. Open pages keep what they show.
            log.debug("cannot refresh a page", reason=error.message)
            return None
        except Exception:
            log.exception("cannot refresh a page")
            return None
        new = {piece.name: piece for piece in pieces}
        if new != self.pieces:
            self.pieces = new
            for changed in self._changed:
                changed.set()
        return pause


class Channels:
    """All channels by what they show. The hub wakes those that a change concerns."""

    def __init__(self, hub: Hub) -> None:
        self._channels: dict[Hashable, Channel] = {}
        hub.attach(self)

    def channel(self, key: Hashable, read: Read, wakes: frozenset[str]) -> Channel:
        if len(self._channels) > 200:  # drop filters and details that no page shows any more
            self._channels = {key: one for key, one in self._channels.items() if one.watched}
        if key not in self._channels:
            self._channels[key] = Channel(read, wakes)
        return self._channels[key]

    def put(self, change: Change) -> None:
        for channel in self._channels.values():
            if change.kind in channel.wakes:
                channel.touch()

    def touch(self) -> None:
        """Make all watched channels read again now."""
        for channel in self._channels.values():
            channel.touch()
