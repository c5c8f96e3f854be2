"""Django's database connections: their URL, a test kit on them, and closing them after a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections

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
    given = {
        name: str(value) for name, value in connection.get_connection_params().items() if value is not None
    }
    known = {name: value for name, value in given.items() if name not in _NOT_LIBPQ}
    user, password, host, port, name = (
        quote(known.pop(part, ""), safe="") for part in ("user", "password", "host", "port", "dbname")
    )
    login = f"{user}:{password}" if password else user
    place = f"{host}:{port}" if port else host
    more = urlencode(known, quote_via=quote)
    return f"postgresql://{login}{login and '@'}{place}/{name}{more and '?'}{more}"


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
    with Kit.sync(app or own, url_of(connections[using])) as opened:
        yield opened
