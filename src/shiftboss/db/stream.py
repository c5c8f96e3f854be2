"""Reads the stream of a task by part number, so that a reader can resume without gaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from shiftboss.model.errors import NotFound
from shiftboss.model.task import FINAL

if TYPE_CHECKING:
    from shiftboss.db.steps import Steps

#: Shortest and longest polling interval in seconds. Polling costs the writer nothing.
SOONEST, LATEST = 0.05, 0.5


class Streamed(NamedTuple):
    """One part. `discard` is set when the task runs again: the numbers of parts that are no longer valid."""

    number: int
    attempt: int
    part: Any
    at: datetime
    discard: frozenset[int] | None = None


async def follow(steps: Steps, id: UUID, after: int = 0) -> AsyncIterator[Streamed]:
    """Yield parts after number `after` as they arrive, until the task ends."""
    pause = SOONEST
    while True:
        status = await steps.status(id)
        if status is None:
            raise NotFound(f"there is no task {id}", hint="it may have been pruned")
        rows = await steps.parts(id, after)
        for row in rows:
            after = row["seq"]
            if not row["restart"] or row["part"]["discard"]:  # a task that only continues withdraws nothing
                yield _streamed(row)
        if not rows and status in FINAL:
            return
        pause = SOONEST if rows else min(pause * 1.5, LATEST)
        if not rows:
            await asyncio.sleep(pause)


def _streamed(row: dict[str, Any]) -> Streamed:
    if row["restart"]:
        return Streamed(row["seq"], row["attempt"], None, row["at"], frozenset(row["part"]["discard"]))
    return Streamed(row["seq"], row["attempt"], row["part"], row["at"])
