"""Logs of tasks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from uuid import UUID

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.model.codec import current
from shiftboss.model.errors import NotFound
from shiftboss.model.log import LogLine
from shiftboss.model.task import FINAL

APPEND = (
    "SELECT shiftboss.append_logs(%s::uuid[], %s::int[], %s::text[], %s::timestamptz[], %s::int[],"
    " %s::text[], %s::text[], %s::int[], %s::uuid[])"
)
#: Shortest and longest polling interval in seconds, and how long to wait for a finished task's last lines.
SOONEST, LATEST, LAST_LINES = 0.1, 0.5, 1.0


class Logs(Family):
    async def append(self, lines: Sequence[LogLine], ended: Sequence[UUID] = ()) -> None:
        """Store lines in this order, and trim the logs of `ended` tasks to their maximum size."""
        columns = [list(column) for column in zip(*lines, strict=True)] if lines else [[] for _ in range(9)]
        ids, _, attempts, steps, at, levels, loggers, messages, dropped = columns
        times = [datetime.fromtimestamp(seconds, UTC) for seconds in at]
        texts = [current().text(message) for message in messages]
        values = [ids, attempts, steps, times, levels, loggers, texts, dropped, list(ended)]
        await self._db.fetch(APPEND, values)

    async def read(self, id: UUID, after: int = 0, limit: int = 500, level: int = 0) -> list[Row]:
        """Return lines after number `after`, in order, of at least this level."""
        rows = await self._db.call_rows("read_logs", id, after, limit, level)
        return [row | {"level": logging.getLevelName(row["level"]).lower()} for row in rows]

    async def follow(self, id: UUID, after: int = 0, level: int = 0) -> AsyncIterator[Row]:
        """Yield lines after number `after` as they arrive, until the task ends."""
        pause, quiet_since = SOONEST, time.monotonic()
        while True:
            status = await self._db.steps.status(id)
            if status is None:
                raise NotFound(f"there is no task {id}", hint="it may have been pruned")
            rows = await self.read(id, after, level=level)
            for row in rows:
                after = row["id"]
                yield row
            if rows or status not in FINAL:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > LAST_LINES:
                return
            pause = SOONEST if rows else min(pause * 1.5, LATEST)
            await asyncio.sleep(pause)
