"""Load: claim changed rows, one batch at a time, whoever of this process's lanes asks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from shiftboss.model.vectorizer import SourceRow, Vectorizer

if TYPE_CHECKING:
    from shiftboss.db import Database


class Load:
    """Dry once there was nothing to claim, or once it is closed."""

    def __init__(self, db: Database, vectorizer: Vectorizer, lease: float) -> None:
        self._db = db
        self._vectorizer = vectorizer
        self._lease = timedelta(seconds=lease)
        self._turn = asyncio.Lock()
        self.dry = False

    def close(self) -> None:
        self.dry = True

    async def batch(self) -> list[SourceRow]:
        """The next rows; empty when there are none."""
        async with self._turn:
            if self.dry:
                return []
            rows = await self._db.vectorizers.claim(
                self._vectorizer.id, self._vectorizer.batch_size, self._lease
            )
            self.dry = not rows
            return rows
