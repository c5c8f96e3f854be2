"""Logs of tasks."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.db.stream import until_end
from shiftboss.model.codec import current
from shiftboss.model.log import LogLine

APPEND = (
    "SELECT shiftboss.append_logs(%s::uuid[], %s::int[], %s::text[], %s::timestamptz[], %s::int[],"
    " %s::text[], %s::text[], %s::int[], %s::uuid[])"
)
#: How long to wait for the last lines of a finished task, in seconds.
LAST_LINES = 1.0


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

    def follow(self, id: UUID, after: int = 0, level: int = 0) -> AsyncIterator[Row]:
        """Yield lines after number `after` as they arrive, until the task ends."""
        return until_end(self._db.steps, id, "id", partial(self.read, id, level=level), after, LAST_LINES)
