"""Reports and locks: a row that another session has locked delays its own report and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from shiftboss.model.errors import DatabaseError, TasksLocked

if TYPE_CHECKING:
    from shiftboss.db.database import Database

LOCK_NOT_AVAILABLE = "55P03"
#: In the FROM clause of a report: bounds the wait for each lock, in this statement's own transaction. Shorter
#: than deadlock_timeout, so that a report that meets a caller crosswise gives way, and the caller never must.
BOUNDED = "pg_catalog.set_config('lock_timeout', '250ms', true)"

Send = Callable[[Sequence[int]], Awaitable[list[UUID]]]


async def deliver(db: Database, ids: Sequence[UUID], send: Send) -> list[UUID]:
    """What `send` returns for all places of `ids`: the stale ones.

    Where a lock is in the way, those without one are sent again; TasksLocked names the others.
    """
    every = range(len(ids))
    try:
        return await send(every)
    except DatabaseError as error:
        if error.sqlstate != LOCK_NOT_AVAILABLE:
            raise
    if len(ids) == 1:
        raise TasksLocked(ids)
    row = await db.fetch_one("SELECT shiftboss.locked(%s) AS ids", [list(ids)])
    held = set(row["ids"]) if row else set()
    stale, left = await _in_parts(send, [n for n in every if ids[n] not in held])
    if held := held.union(ids[n] for n in left):
        raise TasksLocked(held, stale)
    return stale


async def _in_parts(send: Send, places: Sequence[int]) -> tuple[list[UUID], list[int]]:
    """The stale ids, and the places that a lock further away still keeps from being reported."""
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
