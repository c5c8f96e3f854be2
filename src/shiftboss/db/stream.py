"""Reads what a task emits or logs by number, so that a reader can resume without gaps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from shiftboss.model.errors import NotFound
from shiftboss.model.task import FINAL

if TYPE_CHECKING:
    from shiftboss.db.connection import Row
    from shiftboss.db.steps import Steps

#: Shortest and longest polling interval in seconds. Polling costs the writer nothing.
SOONEST, LATEST = 0.05, 0.5

#: Returns rows after a number, in order.
Read = Callable[[int], Awaitable[list["Row"]]]


class Streamed(NamedTuple):
    """One part. `discard` is set when the task runs again: the numbers of parts that are no longer valid."""

    number: int
    attempt: int
    part: Any
    at: datetime
    discard: frozenset[int] | None = None


async def follow(steps: Steps, id: UUID, after: int = 0) -> AsyncIterator[Streamed]:
    """Yield parts after number `after` as they arrive, until the task ends."""
    async for row in until_end(steps, id, "seq", partial(steps.parts, id), after):
        if not row["restart"] or row["part"]["discard"]:  # a task that only continues withdraws nothing
            yield _streamed(row)


async def until_end(
    steps: Steps, id: UUID, number: str, read: Read, after: int, linger: float = 0.0
) -> AsyncIterator[Row]:
    """Yield what `read` finds after a number, until the task has ended and nothing came for `linger` s."""
    pause, heard = SOONEST, time.monotonic()
    while True:
        status = await steps.status(id)
        if status is None:
            raise NotFound(f"there is no task {id}", hint="it may have been pruned")
        rows = await read(after)
        for row in rows:
            after = row[number]
            yield row
        if rows:
            pause, heard = SOONEST, time.monotonic()
            continue
        if status not in FINAL:
            heard = time.monotonic()
        elif time.monotonic() - heard >= linger:
            return
        pause = min(pause * 1.5, LATEST)
        await asyncio.sleep(pause)


def _streamed(row: dict[str, Any]) -> Streamed:
    if row["restart"]:
        return Streamed(row["seq"], row["attempt"], None, row["at"], frozenset(row["part"]["discard"]))
    return Streamed(row["seq"], row["attempt"], row["part"], row["at"])
