"""Load: claim changed rows ahead of need, and hand them out a batch at a time to whichever lane asks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from shiftboss.extensions.vectorizer.model import SourceRow, Vectorizer
from shiftboss.extensions.vectorizer.store import Vectorizers

if TYPE_CHECKING:
    from shiftboss.db import Database

MOST_ROWS = 2048  # claimed at once: few round trips, and little to take over from a worker that dies
MOST_CHARACTERS = 8_000_000  # claimed at once, as far as the rows before told; half of it in a batch


class Load:
    """Dry once there was nothing to claim, or once it is closed."""

    def __init__(self, db: Database, vectorizer: Vectorizer, lease: float) -> None:
        self._db = db
        self._vectorizer = vectorizer
        self._lease = timedelta(seconds=lease)
        self._turn = asyncio.Lock()
        self._ready: deque[list[SourceRow]] = deque()
        self._fresh_until = 0.0
        size = vectorizer.batch_size
        self._rows = size  # at first, so that the first call is made soon; then twice as many each time
        self._most_rows = size * min(vectorizer.concurrency, max(1, MOST_ROWS // size))
        self.dry = False

    def close(self) -> None:
        self.dry = True

    async def batch(self) -> list[SourceRow]:
        """The next rows; empty when there are none."""
        async with self._turn:
            while not self.dry:
                if not self._ready:
                    await self._claim()
                elif rows := await self._still_held(self._ready.popleft()):
                    return rows
            return []

    async def give_back(self) -> None:
        """What was claimed and not handed out is free for others."""
        rows = [row for batch in self._ready for row in batch]
        self._ready.clear()
        if rows:
            await self._db.family(Vectorizers).release(self._vectorizer.id, rows)

    async def _still_held(self, rows: list[SourceRow]) -> list[SourceRow]:
        """Rows that have waited here for long may have lapsed, and be another's by now."""
        if time.monotonic() < self._fresh_until:
            return rows
        return await self._db.family(Vectorizers).extend(self._vectorizer.id, rows, self._lease)

    async def _claim(self) -> None:
        rows = await self._db.family(Vectorizers).claim(self._vectorizer.id, self._rows, self._lease)
        self._ready.extend(cut(rows, self._vectorizer.batch_size))
        self._fresh_until = time.monotonic() + self._lease.total_seconds() / 3
        fitting = MOST_CHARACTERS * len(rows) // (sum(map(length, rows)) or 1)
        self._rows = max(1, min(2 * self._rows, self._most_rows, fitting))
        self.dry = self.dry or not rows


def cut(rows: Iterable[SourceRow], size: int) -> Iterator[list[SourceRow]]:
    """Batches of at most `size` rows, fewer where they are long."""
    batch: list[SourceRow] = []
    characters = 0
    for row in rows:
        if batch and (len(batch) == size or characters + length(row) > MOST_CHARACTERS // 2):
            yield batch
            batch, characters = [], 0
        batch.append(row)
        characters += length(row)
    if batch:
        yield batch


def length(row: SourceRow) -> int:
    return sum(len(text or "") for text in row.fields)
