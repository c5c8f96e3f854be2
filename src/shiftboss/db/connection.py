"""How every connection of ours is made, and how the driver's errors become ours."""

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
from psycopg.adapt import AdaptersMap, Buffer
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
#: Serialization failure and deadlock: the transaction was rolled back whole and may be tried again.
CROSSED: Final = ("40001", "40P01")

# What the statements of this package rely on, whatever was set for the role or the database. The timeouts of
# statements and locks stay: they protect the server, and what they end is tried again with less to do.
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
    """A dict given as a parameter is jsonb; a list stays an array."""


class _ShownLoader(JsonbLoader):
    """Rows come as text where they are shown: one number that Python cannot hold must not hide the rest.

    A claim asks for the binary form and meets the strict reader: nobody runs a task with other arguments than
    were given.
    """

    def load(self, data: Buffer) -> Any:
        text = bytes(data)
        try:
            return _loads(text)
        except orjson.JSONDecodeError as error:
            with suppress(RecursionError):
                if "infinity" in error.msg:
                    return json.loads(text, parse_int=_number, parse_float=_number)
            return text.decode()  # too deep to be shown as anything else


def _loads(text: str | bytes) -> Any:
    value = orjson.loads(text)
    sealed = codec.MARK in text if isinstance(text, str) else codec.MARK_BYTES in text
    return codec.current().open(value) if sealed else value


def _opened_row(cursor: psycopg.AsyncCursor[Any]) -> RowMaker[Row]:
    """Rows as dicts; sealed text in them is opened, as far as there are keys."""
    made = dict_row(cursor)

    def opened(values: Sequence[Any]) -> Row:
        row = made(values)
        for name, value in row.items():
            if type(value) is str and codec.MARK in value:
                row[name] = codec.current().open_text(value)
        return row

    return opened


def _number(digits: str) -> float | str:
    value = float(digits)
    return value if isfinite(value) else digits


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(dict, _DictDumper)
    set_json_loads(_loads, adapters)
    set_json_dumps(_dumps, adapters)
    adapters.register_loader("jsonb", _ShownLoader)
    return adapters


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


class _Context:
    """What psycopg asks for to take over our adapters."""

    adapters = _adapters()
    connection = None


def connection_options(pooled: bool = False) -> dict[str, Any]:
    """Keyword arguments of every connect: autocommit, dict rows, our JSON.

    Behind a transaction pooler the next statement may run in another session: nothing is prepared there.
    """
    return {
        **({"prepare_threshold": None} if pooled else {}),
        "autocommit": True,
        "row_factory": _opened_row,
        "context": _Context(),
        "fallback_application_name": "shiftboss",
    }


async def again(call: Callable[[], Awaitable[T]]) -> T:
    """What `call` returns; it is called again, a few times, when it met another transaction crosswise.

    For transactions of our own, begun and ended by `call`.
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
    """Refuse what is no PostgreSQL URL. The message leaves the URL out: it may hold a password."""
    scheme, separator, _ = url.partition("://")
    if (separator and scheme in ("postgresql", "postgres")) or (not separator and "=" in url):
        return
    wrong = f"starts with {scheme}://" if separator and "@" not in scheme else "has no scheme"
    hint = "write postgresql://user@host:5432/database"
    if scheme.startswith(("postgres+", "postgresql+")):
        hint = f"leave out {scheme[scheme.index('+') :]}, which is for SQLAlchemy: postgresql://…"
    raise ConfigError(f"the database URL {wrong}", hint=hint)


@asynccontextmanager
async def connect(url: str, pooled: bool = False) -> AsyncIterator[Connection]:
    """One connection outside any pool, closed at the end."""
    check_url(url)
    with translated():
        conn: Connection = await psycopg.AsyncConnection.connect(conninfo(url), **connection_options())
        async with conn:
            answered(url, conn)
            if conn.info.server_version < OLDEST_SERVER:
                raise DatabaseUnavailable(
                    f"PostgreSQL {conn.info.server_version // 10000} is too old",
                    hint="Shiftboss needs PostgreSQL 14 or newer",
                )
            await settle(conn, pooled or await is_pooled(conn))
            yield conn


async def is_pooled(conn: Connection) -> bool:
    """True behind a pooler: the process that answers is not the one that the handshake named."""
    row = await (await conn.execute("SELECT pg_catalog.pg_backend_pid() AS pid", prepare=False)).fetchone()
    return row is not None and row["pid"] != conn.info.backend_pid


async def settle(conn: Connection, pooled: bool) -> None:
    """Give a new connection our settings; not behind a pooler, where other clients would get them too."""
    await conn.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
    if pooled:
        conn.prepare_threshold = None
    else:
        await conn.execute(_assignments(SETTINGS, conn, local=False))


async def odd_settings(conn: Connection) -> str | None:
    """What has to be set in each transaction behind a pooler; None if nothing has to."""
    wanted = {name: value for name, value in SETTINGS.items() if _known(name, conn)}
    shown = ", ".join(f"pg_catalog.current_setting('{name}') AS {name}" for name in wanted)
    row = await (await conn.execute(f"SELECT {shown}", prepare=False)).fetchone() or {}
    odd = {name: value for name, value in wanted.items() if row[name.lower()] != value}
    return _assignments(odd, conn, local=True) if odd.keys() - {"TimeZone"} else None


def settings_of_transaction(conn: Connection) -> str:
    """Our settings until the end of a transaction, as a statement."""
    return _assignments(SETTINGS, conn, local=True)


def _assignments(settings: dict[str, str], conn: Connection, *, local: bool) -> str:
    """One statement, so that it can be part of a pipeline."""
    calls = [
        f"pg_catalog.set_config('{name}', '{value}', {local})"
        for name, value in settings.items()
        if _known(name, conn)
    ]
    return "SELECT " + ", ".join(calls)


def _known(name: str, conn: Connection) -> bool:
    return conn.info.server_version >= _SINCE.get(name, 0)


@contextmanager
def translated() -> Iterator[None]:
    """Let the driver's errors leave as ours, so that no other room needs to know the driver."""
    try:
        yield
    except ShiftbossError:
        raise
    except psycopg.Error as error:
        raise _translate(error) from error


def _translate(error: psycopg.Error) -> DatabaseError:
    message = error.diag.message_primary or str(error).strip() or type(error).__name__
    message = " ".join(message.split())  # libpq's own run over several lines
    hint, state = error.diag.message_hint, error.sqlstate
    if _passes(error):
        hint = hint or "check that PostgreSQL runs and that SHIFTBOSS_DATABASE_URL is right"
        return DatabaseUnavailable(message, hint=hint, sqlstate=state)
    return DatabaseError(message, hint=hint, sqlstate=state)


def _passes(error: psycopg.Error) -> bool:
    # A full disk or too little memory (53), a deadlock or lost race (40), an I/O error (58): as good as away,
    # for the same again may well go through. 08 is the connection, 57P an administrator's shutdown.
    state = error.sqlstate
    if state is None:
        # Only these are about what was to be sent. The driver raises InternalError when a COMMIT gets two
        # answers, as when the server ends the session just then: nobody knows whether it was committed.
        return not isinstance(error, psycopg.DataError | psycopg.ProgrammingError | psycopg.NotSupportedError)
    return state.startswith(("08", "40", "53", "57P", "58"))
