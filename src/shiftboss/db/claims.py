"""Reads claimed tasks, including those whose values Python cannot represent."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import RowMaker

from shiftboss.model.task import Claimed, Unreadable


def claimed_row(cursor: psycopg.AsyncCursor[Any]) -> RowMaker[Claimed]:
    """Make rows claimed tasks. Many arrive at a time, so no Python function is called for each."""
    return partial(tuple.__new__, Claimed)


async def read_claimed(cursor: psycopg.AsyncCursor[Claimed]) -> list[Claimed]:
    """Return all claimed tasks. A value that Python cannot represent fails only its own task."""
    try:
        return await cursor.fetchall()
    except Exception:  # the rows have arrived, so the error concerns a value
        return [await _one(cursor, row) for row in range(cursor.rowcount)]


async def _one(cursor: psycopg.AsyncCursor[Claimed], row: int) -> Claimed:
    assert cursor.pgresult is not None
    try:
        await cursor.scroll(row, mode="absolute")
        task = await cursor.fetchone()
        assert task is not None
        return task
    except Exception as error:
        id, lease, task_type = (cursor.pgresult.get_value(row, column) or b"" for column in range(3))
        held = (UUID(bytes=id), int.from_bytes(lease, "big", signed=True), task_type.decode())
        return _unreadable(*held, reason=str(error))


def _unreadable(id: UUID, lease: int, task_type: str, reason: str) -> Claimed:
    """Return a task with just enough data to fail it."""
    now = datetime.now(UTC)
    return Claimed(
        id, lease, task_type, Unreadable(reason), attempt=1, max_attempts=1, queue="default", priority=5,
        tenant=None, timeout=None, deadline=None, created_at=now, ready_at=now, started_at=now, lane=0,
        run_id=None, metadata=None,
    )  # fmt: skip
