"""Enqueue in the transaction of a caller's connection: psycopg, SQLAlchemy, Django or DB-API."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import args_row

from shiftboss import tracing
from shiftboss.db.connection import loads, opened, translated
from shiftboss.db.encoding import ENQUEUE, as_given, encode
from shiftboss.db.payload import dumps
from shiftboss.model.errors import MigrationError, UsageError
from shiftboss.model.task import Enqueued, NewTask

STATEMENT = "SELECT id, created FROM shiftboss.enqueue(CAST({} AS jsonb))"
LOOK = """
    SELECT id, task_type, status::text, queue, created_at, generation_started_at, generation_processed_at,
           last_worker_id, error_message, params::text, result_data::text
    FROM public.tasks WHERE id = %s
"""
MISSING = (
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedTable,
)


async def enqueue_on(conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """Enqueue on an async connection of psycopg, or an AsyncSession or AsyncConnection of SQLAlchemy."""
    with tracing.sending(tasks) as carried:
        return await _enqueue_on(conn, carried)


async def _enqueue_on(conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    if isinstance(conn, psycopg.AsyncConnection):
        with translated():
            cursor = await conn.execute(STATEMENT.format("%s"), [_text(tasks)])
            return _rows(tasks, await cursor.fetchall())
    if not (_is_sqlalchemy(conn) and inspect.iscoroutinefunction(conn.execute)):
        raise _refused(conn, "an async", "for a synchronous connection, use app.sync.enqueue(..., conn=...)")
    return _rows(tasks, (await conn.execute(_statement(), {"tasks": _text(tasks)})).all())


def enqueue_sync_on(conn: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    """Enqueue on a synchronous connection of psycopg, SQLAlchemy, Django or any DB-API driver."""
    if isinstance(conn, psycopg.Connection):
        return enqueue_sync(tasks, conn)
    with tracing.sending(tasks) as carried:
        return _enqueue_sync_on(conn, carried)


def enqueue_sync(tasks: Sequence[NewTask], conn: psycopg.Connection[Any]) -> list[Enqueued]:
    """Enqueue on a synchronous psycopg connection, in its transaction."""
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
        raise _refused(conn, "a synchronous", "for an async connection, use await app.enqueue(..., conn=...)")
    if getattr(conn, "vendor", "postgresql") != "postgresql":  # Django's name for it
        raise UsageError(
            f"this connection is to {conn.vendor}, and tasks are stored in PostgreSQL",
            hint="pass a connection to PostgreSQL",
        )
    with translated(), _explained(), cursor() as own:
        own.execute(STATEMENT.format("%s"), [_text(tasks)])
        return _rows(tasks, own.fetchall())


def look_sync_on(conn: Any, id: UUID) -> dict[str, Any] | None:
    """Return the row of a task on a synchronous connection of Django, or None."""
    with translated(), _explained(), conn.cursor() as cursor:
        cursor.execute(LOOK, [id])
        columns, row = [column[0] for column in cursor.description], cursor.fetchone()
    if row is None:
        return None
    found = dict(zip(columns, row, strict=True))
    found |= {name: found[name] and loads(found[name]) for name in ("params", "result_data")}
    return found | {"error_message": opened(found["error_message"])}


@contextmanager
def _explained() -> Iterator[None]:
    """Say what to run if the schema is missing. Django raises errors of its own, caused by the driver's."""
    try:
        yield
    except Exception as error:
        cause = error if isinstance(error, psycopg.Error) else error.__cause__
        if isinstance(cause, MISSING):
            raise MigrationError(
                f"this database has no Shiftboss schema, or an older one: {_remedy(error)}",
                sqlstate=cause.sqlstate,
            ) from error
        raise


def _remedy(error: Exception) -> str:
    if not type(error).__module__.startswith("django."):
        return "run `shiftboss db migrate`"
    return 'add "shiftboss.frameworks.django" to INSTALLED_APPS and run `python manage.py migrate`'


def _is_sqlalchemy(conn: Any) -> bool:
    # A session may be a subclass of SQLAlchemy's, as in sqlmodel.
    return any(kind.__module__.partition(".")[0] == "sqlalchemy" for kind in type(conn).__mro__)


def _statement() -> Any:
    from sqlalchemy import text

    return text(STATEMENT.format(":tasks"))


def _text(tasks: Sequence[NewTask]) -> str:
    return dumps(encode(tasks).obj).decode()


def _rows(tasks: Sequence[NewTask], rows: Sequence[Any]) -> list[Enqueued]:
    # A caller's connection may return rows as dicts, and ids as text.
    values = (tuple(row.values()) if isinstance(row, dict) else row for row in rows)
    return as_given(tasks, [Enqueued(UUID(str(id)), created) for id, created in values])


def _refused(conn: Any, kind: str, hint: str) -> UsageError:
    return UsageError(f"{type(conn).__name__} is not {kind} database connection", hint=hint)
