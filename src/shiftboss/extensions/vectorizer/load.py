"""Claims changed rows ahead of time and hands them out to the lanes in batches."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import timedelta

from shiftboss.db import Database
from shiftboss.extensions.vectorizer.model import SourceRow, VectorizerSpec
from shiftboss.extensions.vectorizer.store import Vectorizers

MAX_ROWS = 2048  # per claim: few round trips, and not many rows to wait for if the worker dies
MAX_CHARACTERS = 8_000_000  # per claim, estimated from earlier rows; at most half of it per batch


class RowLoader:
    """The claimed rows of a run. It is `dry` when there is nothing left to claim, or when it is closed."""

    def __init__(self, db: Database, vectorizer: VectorizerSpec, lease: float) -> None:
        self._db = db
        self._vectorizer = vectorizer
        self._lease = timedelta(seconds=lease)
        self._turn = asyncio.Lock()
        self._ready: deque[list[SourceRow]] = deque()
        self._fresh_until = 0.0
        size = vectorizer.batch_size
        self._rows = size  # small at first, so that the first call starts early; doubled with each claim
        self._max_rows = size * min(vectorizer.concurrency, max(1, MAX_ROWS // size))
        self.dry = False

    def close(self) -> None:
        self.dry = True

    async def batch(self) -> list[SourceRow]:
        """Return the next batch of rows; empty if there are none."""
        async with self._turn:
            while not self.dry:
                if not self._ready:
                    await self._claim()
                elif rows := await self._still_held(self._ready.popleft()):
                    return rows
            return []

    async def give_back(self) -> None:
        """Release the rows that were claimed but not handed out."""
        rows = [row for batch in self._ready for row in batch]
        self._ready.clear()
        if rows:
            await self._db.family(Vectorizers).release(self._vectorizer.id, rows)

    async def _still_held(self, rows: list[SourceRow]) -> list[SourceRow]:
        """Return the rows whose claim is still valid; claims may have expired while the rows waited here."""
        if time.monotonic() < self._fresh_until:
            return rows
        return await self._db.family(Vectorizers).extend(self._vectorizer.id, rows, self._lease)

    async def _claim(self) -> None:
        rows = await self._db.family(Vectorizers).claim(self._vectorizer.id, self._rows, self._lease)
        self._ready.extend(cut(rows, self._vectorizer.batch_size))
        self._fresh_until = time.monotonic() + self._lease.total_seconds() / 3
        fitting = MAX_CHARACTERS * len(rows) // (sum(map(length, rows)) or 1)
        self._rows = max(1, min(2 * self._rows, self._max_rows, fitting))
        self.dry = self.dry or not rows


def cut(rows: Iterable[SourceRow], size: int) -> Iterator[list[SourceRow]]:
    """Yield batches of at most `size` rows, fewer if the rows are long."""
    batch: list[SourceRow] = []
    characters = 0
    for row in rows:
        if batch and (len(batch) == size or characters + length(row) > MAX_CHARACTERS // 2):
            yield batch
            batch, characters = [], 0
        batch.append(row)
        characters += length(row)
    if batch:
        yield batch


def length(row: SourceRow) -> int:
    return sum(len(text or "") for text in row.fields)
