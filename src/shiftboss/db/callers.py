"""Enqueue on the caller's own connection, in its transaction: psycopg, SQLAlchemy, Django, DB-API."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import args_row

from shiftboss import tracing
from shiftboss.db.connection import translated
from shiftboss.db.payload import dumps
from shiftboss.db.tasks import ENQUEUE, as_given, encode
from shiftboss.model.errors import UsageError
from shiftboss.model.task import Enqueued, NewTask

STATEMENT = "SELECT id, created FROM shiftboss.enqueue(CAST({} AS jsonb))"


async def enqueue_on(conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """On an async connection: psycopg's, or SQLAlchemy's AsyncSession and AsyncConnection."""
    with tracing.sending(tasks) as carried:
        return await _enqueue_on(conn, carried)


async def _enqueue_on(conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    if isinstance(conn, psycopg.AsyncConnection):
        with translated():
            cursor = await conn.execute(STATEMENT.format("%s"), [_text(tasks)])
            return _rows(tasks, await cursor.fetchall())
    if not (_is_sqlalchemy(conn) and inspect.iscoroutinefunction(conn.execute)):
        raise _refused(conn, "an async", "app.sync.enqueue(..., conn=...) takes synchronous ones")
    return _rows(tasks, (await conn.execute(_statement(), {"tasks": _text(tasks)})).all())


def enqueue_sync_on(conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """On a sync connection: psycopg's, SQLAlchemy's Session and Connection, Django's, any DB-API one."""
    if isinstance(conn, psycopg.Connection):
        return enqueue_sync(tasks, conn)
    with tracing.sending(tasks) as carried:
        return _enqueue_sync_on(conn, carried)


def enqueue_sync(tasks: Sequence[NewTask], conn: psycopg.Connection[Any]) -> list[Enqueued]:
    """Enqueue on the caller's own synchronous connection, in its transaction."""
    with (
        tracing.sending(tasks) as carried,
        translated(),
        conn.cursor(row_factory=args_row(Enqueued)) as cursor,
    ):
        cursor.execute(ENQUEUE, [encode(carried)])
        return as_given(carried, cursor.fetchall())


def _enqueue_sync_on(conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    if _is_sqlalchemy(conn) and not inspect.iscoroutinefunction(conn.execute):
        return _rows(tasks, conn.execute(_statement(), {"tasks": _text(tasks)}).all())
    cursor: Callable[[], Any] | None = getattr(conn, "cursor", None)
    if cursor is None or _is_sqlalchemy(conn) or isinstance(conn, psycopg.AsyncConnection):
        raise _refused(conn, "a synchronous", "`await app.enqueue(..., conn=...)` takes async ones")
    with translated(), cursor() as own:
        own.execute(STATEMENT.format("%s"), [_text(tasks)])
        return _rows(tasks, own.fetchall())


def _is_sqlalchemy(conn: Any) -> bool:
    # Sessions may be classes of the user's own that derive from SQLAlchemy's; sqlmodel's do.
    return any(kind.__module__.partition(".")[0] == "sqlalchemy" for kind in type(conn).__mro__)


def _statement() -> Any:
    from sqlalchemy import text

    return text(STATEMENT.format(":tasks"))


def _text(tasks: Sequence[NewTask]) -> str:
    return dumps(encode(tasks).obj).decode()


def _rows(tasks: Sequence[NewTask], rows: Sequence[Any]) -> list[Enqueued]:
    # A caller's connection may give rows as dicts, and ids as text.
    values = (tuple(row.values()) if isinstance(row, dict) else row for row in rows)
    return as_given(tasks, [Enqueued(UUID(str(id)), created) for id, created in values])


def _refused(conn: Any, kind: str, hint: str) -> UsageError:
    return UsageError(f"{type(conn).__name__} is not {kind} connection that can be used here", hint=hint)
