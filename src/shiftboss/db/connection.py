"""Connections: options, session settings, JSON adapters, and translation of the driver's errors."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from math import isfinite
from typing import Any, Final, TypeVar

import orjson
import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Loader
from psycopg.pq import Format
from psycopg.rows import RowMaker, dict_row
from psycopg.types.json import JsonbDumper, JsonbLoader, set_json_dumps, set_json_loads

from shiftboss.db.hosts import answered, conninfo
from shiftboss.model import codec
from shiftboss.model.errors import ConfigError, DatabaseError, DatabaseUnavailable, ShiftbossError

Row = dict[str, Any]
Connection = psycopg.AsyncConnection[Row]

T = TypeVar("T")

OLDEST_SERVER = 140000
TRIES: Final = 6
#: Serialization failure and deadlock: the whole transaction was rolled back and can be retried.
CROSSED: Final = ("40001", "40P01")

# Settings that the statements of this package rely on; they override those of the role and the database.
# statement_timeout and lock_timeout stay: they protect the server, and callers retry smaller batches.
SETTINGS = {
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
}
_SINCE = {"transaction_timeout": 170000}


class _DictDumper(JsonbDumper):
    """Passes a dict parameter as jsonb. Lists remain arrays."""


class _ShownLoader(JsonbLoader):
    """Loads jsonb leniently for display: one number that Python cannot represent must not hide the rest.

    This applies to the text format. Claims use the binary format and a strict loader, so that no task runs
    with arguments other than those given.
    """

    def load(self, data: Buffer) -> Any:
        text = bytes(data)
        try:
            return loads(text)
        except orjson.JSONDecodeError as error:
            with suppress(RecursionError):
                if "infinity" in error.msg:
                    return json.loads(text, parse_int=_number, parse_float=_number)
            return text.decode()  # nested too deeply to parse


class _ClaimedLoader(Loader):
    """Loads jsonb in the binary format, in which claims receive it: a version number and the text."""

    format = Format.BINARY

    def load(self, data: Buffer) -> Any:
        text = bytes(data)[1:]
        value = orjson.loads(text)
        return codec.current().open(value) if codec.MARK_BYTES in text else value


def loads(text: str | bytes) -> Any:
    """Parse JSON, and decrypt the values in it if their key is configured."""
    value = orjson.loads(text)
    sealed = codec.MARK in text if isinstance(text, str) else codec.MARK_BYTES in text
    return codec.current().open(value) if sealed else value


def _opened_row(cursor: psycopg.AsyncCursor[Any]) -> RowMaker[Row]:
    """Make rows dicts, and decrypt text in them if its key is configured."""
    made = dict_row(cursor)

    def opened_row(values: Sequence[Any]) -> Row:
        row = made(values)
        for name, value in row.items():
            if type(value) is str and codec.MARK in value:
                row[name] = codec.current().open_text(value)
        return row

    return opened_row


def opened(text: str | None) -> str | None:
    """Decrypt text if its key is configured."""
    return codec.current().open_text(text) if text and codec.MARK in text else text


def _number(digits: str) -> float | str:
    value = float(digits)
    return value if isfinite(value) else digits


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(dict, _DictDumper)
    set_json_loads(loads, adapters)
    set_json_dumps(_dumps, adapters)
    adapters.register_loader("jsonb", _ShownLoader)
    adapters.register_loader("jsonb", _ClaimedLoader)
    return adapters


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


class _Context:
    """The object from which psycopg takes our adapters."""

    adapters = _adapters()
    connection = None


_application_name = "shiftboss"


def name_connections(name: str) -> None:
    """Set what pg_stat_activity shows as the `application_name` of this process, unless the URL has one."""
    global _application_name
    _application_name = f"shiftboss {name}"


def connection_options(pooled: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of every connection: autocommit, dict rows, our JSON adapters.

    Behind a transaction pooler, nothing is prepared, because the next statement may run in another session.
    """
    return {
        **({"prepare_threshold": None} if pooled else {}),
        "autocommit": True,
        "row_factory": _opened_row,
        "context": _Context(),
        "fallback_application_name": _application_name,
    }


async def again(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `call`, retrying it after a deadlock or serialization failure.

    `call` must begin and end its own transaction.
    """
    for attempt in range(1, TRIES):
        try:
            return await call()
        except DatabaseError as error:
            if error.sqlstate not in CROSSED:
                raise
        await asyncio.sleep(random.uniform(0, 0.02 * 2**attempt))
    return await call()


def check_url(url: str) -> None:
    """Raise ConfigError unless this is a PostgreSQL URL. The message omits it: it may contain a password."""
    scheme, separator, _ = url.partition("://")
    if (separator and scheme in ("postgresql", "postgres")) or (not separator and "=" in url):
        return
    wrong = f"starts with {scheme}://" if separator and "@" not in scheme else "has no scheme"
    hint = "write postgresql://user@host:5432/database"
    if scheme.startswith(("postgres+", "postgresql+")):
        hint = f"remove {scheme[scheme.index('+') :]}, which only SQLAlchemy understands: postgresql://…"
    raise ConfigError(f"the database URL {wrong}", hint=hint)


@asynccontextmanager
async def connect(url: str, pooled: bool = False) -> AsyncIterator[Connection]:
    """Open one connection outside any pool. It is closed at the end of the block."""
    async with kept(url, pooled) as conn, conn:
        yield conn


@asynccontextmanager
async def kept(url: str, pooled: bool = False) -> AsyncIterator[Connection]:
    """Open one connection that stays open after the block, unless the block raises an exception."""
    check_url(url)
    with translated():
        conn: Connection = await psycopg.AsyncConnection.connect(conninfo(url), **connection_options())
        try:
            answered(url, conn)
            if conn.info.server_version < OLDEST_SERVER:
                raise DatabaseUnavailable(
                    f"PostgreSQL {conn.info.server_version // 10000} is too old",
                    hint="Shiftboss needs PostgreSQL 14 or newer",
                )
            await settle(conn, pooled or await is_pooled(conn))
            yield conn
        except BaseException:
            await conn.close()
            raise


async def is_pooled(conn: Connection) -> bool:
    """Whether a pooler is in between: the backend that answers is not the one named in the handshake."""
    row = await (await conn.execute("SELECT pg_catalog.pg_backend_pid() AS pid", prepare=False)).fetchone()
    return row is not None and row["pid"] != conn.info.backend_pid


async def settle(conn: Connection, pooled: bool) -> None:
    """Apply our session settings, except behind a pooler, where other clients would inherit them."""
    await conn.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
    if pooled:
        conn.prepare_threshold = None
    else:
        await conn.execute(_assignments(SETTINGS, conn, local=False))


async def odd_settings(conn: Connection) -> str | None:
    """Return the statement that each transaction behind a pooler must start with, or None."""
    wanted = {name: value for name, value in SETTINGS.items() if _known(name, conn)}
    shown = ", ".join(f"pg_catalog.current_setting('{name}') AS {name}" for name in wanted)
    row = await (await conn.execute(f"SELECT {shown}", prepare=False)).fetchone() or {}
    odd = {name: value for name, value in wanted.items() if row[name.lower()] != value}
    return _assignments(odd, conn, local=True) if odd.keys() - {"TimeZone"} else None


def settings_of_transaction(conn: Connection) -> str:
    """Return a statement that applies our settings until the end of the transaction."""
    return _assignments(SETTINGS, conn, local=True)


def _assignments(settings: dict[str, str], conn: Connection, *, local: bool) -> str:
    """Return a single statement that makes all settings in one round trip."""
    calls = [
        f"pg_catalog.set_config('{name}', '{value}', {local})"
        for name, value in settings.items()
        if _known(name, conn)
    ]
    return "SELECT " + ", ".join(calls)


def _known(name: str, conn: Connection) -> bool:
    return conn.info.server_version >= _SINCE.get(name, 0)


_HINTS = {
    "42501": "connect as another role, or let the owner of the schema run"
    " `shiftboss db roles KIND ROLE --apply`; kinds: enqueue, viewer, worker, operator",
    "25006": "use the address of the primary; if this is the primary, default_transaction_read_only is on",
}
_CONNECTION_HINTS = (
    (
        ("no password supplied", "password authentication failed"),
        "set PGPASSWORD, or write the password into ~/.pgpass or SHIFTBOSS_DATABASE_URL",
    ),
    (
        ("too many connections", "too many clients", "connection slots"),
        "raise max_connections or the role's CONNECTION LIMIT, lower database.pool_size, or use PgBouncer",
    ),
    (('FATAL: database "',), "create the database, or correct its name in SHIFTBOSS_DATABASE_URL"),
)


@contextmanager
def translated() -> Iterator[None]:
    """Translate the driver's errors into ours, so that other packages do not depend on the driver."""
    try:
        yield
    except ShiftbossError:
        raise
    except psycopg.Error as error:
        raise _translate(error) from error


def _translate(error: psycopg.Error) -> DatabaseError:
    message = error.diag.message_primary or str(error).strip() or type(error).__name__
    message = " ".join(message.split())  # messages of libpq span several lines
    state = error.sqlstate
    hint = error.diag.message_hint or _HINTS.get(state or "")
    if _is_transient(error):
        return DatabaseUnavailable(message, hint=hint or _connection_hint(message), sqlstate=state)
    return DatabaseError(message, hint=hint, sqlstate=state)


def _connection_hint(message: str) -> str:
    """Return what to do if a connection fails. Such errors have no code, only the text of the server."""
    found = (hint for texts, hint in _CONNECTION_HINTS if any(text in message for text in texts))
    return next(found, "check that PostgreSQL is running and that SHIFTBOSS_DATABASE_URL is correct")


def _is_transient(error: psycopg.Error) -> bool:
    # The same statement may succeed later: after connection errors (08), deadlocks and serialization failures
    # (40), a full disk or too little memory (53), a shutdown by an administrator (57P) and I/O errors (58).
    state = error.sqlstate
    if state is None:
        # Only these errors are about the statement itself. The driver also raises InternalError if the server
        # ends the session while it answers a COMMIT: whether the transaction was committed is unknown.
        return not isinstance(error, psycopg.DataError | psycopg.ProgrammingError | psycopg.NotSupportedError)
    return state.startswith(("08", "40", "53", "57P", "58"))
