"""How every connection of ours is made, and how the driver's errors become ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from math import isfinite
from typing import Any

import orjson
import psycopg
from psycopg.adapt import AdaptersMap, Buffer
from psycopg.rows import dict_row
from psycopg.types.json import JsonbDumper, JsonbLoader, set_json_dumps, set_json_loads

from shiftboss.db.embedded import current
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, ShiftbossError

Row = dict[str, Any]
Connection = psycopg.AsyncConnection[Row]

OLDEST_SERVER = 140000


class _DictDumper(JsonbDumper):
    """A dict given as a parameter is jsonb; a list stays an array."""


class _ShownLoader(JsonbLoader):
    """Rows come as text where they are shown: one number that Python can not hold must not hide the rest.

    A claim asks for the binary form and meets the strict reader: nobody runs a task with other arguments than
    were given.
    """

    def load(self, data: Buffer) -> Any:
        text = bytes(data)
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            with suppress(RecursionError):
                if "infinity" in error.msg:
                    return json.loads(text, parse_int=_number, parse_float=_number)
            return text.decode()  # too deep to be shown as anything else


def _number(digits: str) -> float | str:
    value = float(digits)
    return value if isfinite(value) else digits


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(dict, _DictDumper)
    set_json_loads(orjson.loads, adapters)
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

    Behind a transaction pooler the next statement may meet another server process: nothing is prepared there.
    """
    return {
        **({"prepare_threshold": None} if pooled else {}),
        "autocommit": True,
        "row_factory": dict_row,
        "context": _Context(),
        "fallback_application_name": "shiftboss",
        "connect_timeout": 10,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Connection]:
    """One connection outside any pool, closed at the end."""
    with translated():
        conn: Connection = await psycopg.AsyncConnection.connect(current(url), **connection_options())
        async with conn:
            if conn.info.server_version < OLDEST_SERVER:
                raise DatabaseUnavailable(
                    f"PostgreSQL {conn.info.server_version // 10000} is too old",
                    hint="Shiftboss needs PostgreSQL 14 or newer",
                )
            yield conn


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
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith(("08", "40", "53", "57P", "58"))
