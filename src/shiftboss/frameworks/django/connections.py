"""Django's database connections: their URL, a test kit on them, and closing them after a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections
from psycopg.conninfo import make_conninfo

from shiftboss.app import App
from shiftboss.worker.context import Context
from shiftboss.worker.middleware import Next

#: Parameters of Django's driver that are not libpq's.
_NOT_LIBPQ = (
    "context",
    "cursor_factory",
    "prepare_threshold",
    "row_factory",
    "autocommit",
    "server_side_binding",
)


async def close_connections(ctx: Context, call_next: Next) -> Any:
    """Middleware for `async def` tasks: close broken and old Django connections, as a request does.

    Connections of `def` tasks need nothing: each attempt closes its own.
    """
    await sync_to_async(close_old_connections)()
    try:
        return await call_next()
    finally:
        await sync_to_async(close_old_connections)()


def url_of(connection: Any) -> str:
    """Return the connection string of a Django connection; during tests, of the test database."""
    given = connection.get_connection_params()
    return make_conninfo(**{name: value for name, value in given.items() if name not in _NOT_LIBPQ})


@contextmanager
def kit(app: App | None = None, using: str = "default") -> Iterator[Any]:
    """Open a test kit with blocking methods on Django's test database, for the tasks of `app` or Django's.

    The kit deletes all tasks first. Tasks run on other connections than the test, so use it in a
    `TransactionTestCase` or with pytest-django's `transactional_db`.
    """
    from shiftboss.frameworks.django.backend import app as own
    from shiftboss.kit import Kit

    with connections[using].cursor() as cursor:
        cursor.execute("DELETE FROM public.tasks")
    url, before = url_of(connections[using]), own._url
    own.sync.close()
    own._url = url  # `get_result` must look into the test database as well
    try:
        with Kit.sync(app or own, url) as opened:
            yield opened
    finally:
        own.sync.close()
        own._url = before
