"""Reports on locked tasks: a row locked by another session delays only its own report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from shiftboss.model.errors import DatabaseError, TasksLocked

if TYPE_CHECKING:
    from shiftboss.db.database import Database

LOCK_NOT_AVAILABLE = "55P03"
#: Goes into the FROM clause of a report and limits its wait for each lock. It is shorter than
#: deadlock_timeout, so that in a deadlock with a caller's transaction, the report fails and not the caller.
BOUNDED = "pg_catalog.set_config('lock_timeout', '250ms', true)"

Send = Callable[[Sequence[int]], Awaitable[list[UUID]]]


async def deliver(db: Database, given: Sequence[UUID | str], send: Send) -> list[UUID]:
    """Report all tasks with `send`, which takes positions in `given`, and return the stale ones.

    If some tasks are locked, reports the others and raises TasksLocked with the locked ones.
    """
    every = range(len(given))
    try:
        return await send(every)
    except DatabaseError as error:
        if error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
    ids = [UUID(str(id)) for id in given]
    if len(ids) == 1:
        raise TasksLocked(ids)
    held = set(await db.call_value(list[UUID], "locked", ids))
    stale, left = await _in_parts(send, [n for n in every if ids[n] not in held])
    if held := held.union(ids[n] for n in left):
        raise TasksLocked(held, stale)
    return stale


async def _in_parts(send: Send, places: Sequence[int]) -> tuple[list[UUID], list[int]]:
    """Return the stale ids, and the positions that locks on related rows still block."""
    stale: list[UUID] = []
    left: list[int] = []
    parts: list[Sequence[int]] = [places] if places else []
    while parts:
        part = parts.pop()
        try:
            stale += await send(part)
        except DatabaseError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE:
                raise
            if len(part) == 1:
                left += part
            else:
                parts += [part[: len(part) // 2], part[len(part) // 2 :]]
    return stale, left
