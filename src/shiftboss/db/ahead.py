"""Indexes that migrations add to large tables, built before the migration and without locking the table.

A migration is one transaction, so that an index built in it keeps everybody from writing until all of it is
committed. One that is there already is passed over by `CREATE INDEX IF NOT EXISTS`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import psycopg
from psycopg import sql

from shiftboss.db.connection import Connection
from shiftboss.db.sqlfiles import SqlFile
from shiftboss.log import get_logger

log = get_logger(__name__)

LARGE = 64 * 1024 * 1024
"""Bytes from which on a table is large: a smaller one is read in a fraction of a second."""
_INDEX = re.compile(r"^CREATE (UNIQUE )?INDEX IF NOT EXISTS (\w+) ON (\w+)\.(\w+)([^;]*);", re.MULTILINE)
_FOUND = """
SELECT w.n - 1 AS place, NOT i.indisvalid AS broken,
    i.indexrelid IS NULL AND pg_catalog.pg_table_size(t.oid) >= %s AS missing
FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY w (relation, index, n)
JOIN pg_catalog.pg_class t ON t.oid = to_regclass(w.relation)
LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = to_regclass(w.index)
"""


class Index(NamedTuple):
    unique: str
    name: str
    schema: str
    table: str
    rest: str
    pending: bool = True

    @property
    def create(self) -> str:
        where = f"{self.schema}.{self.table}{self.rest}"
        return f"CREATE {self.unique}INDEX CONCURRENTLY IF NOT EXISTS {self.name} ON {where}"


def indexes(file: SqlFile, pending: bool = True) -> list[Index]:
    """What can be built ahead of this migration."""
    return [Index(u, name, s, table, rest, pending) for u, name, s, table, rest in _INDEX.findall(file.sql)]


async def build_ahead(conn: Connection, wanted: Sequence[Index], large: int = LARGE) -> list[str]:
    """Build those that a large table lacks, and those that an earlier attempt left unfinished; their names.

    What cannot be built, for want of a column that the migration adds first, is left to the migration.
    """
    if not wanted or await _pooled(conn):
        return []
    await conn.execute(
        "SET search_path = pg_catalog, pg_temp; SET statement_timeout = 0; SET lock_timeout = '60s'"
    )
    tables = [f"{index.schema}.{index.table}" for index in wanted]
    names = [f"{index.schema}.{index.name}" for index in wanted]
    found = await (await conn.execute(_FOUND, [large, tables, names])).fetchall()
    built = []
    for row in found:
        index = wanted[row["place"]]
        if row["broken"]:
            await _drop(conn, index)
        if (row["broken"] or (row["missing"] and index.pending)) and await _build(conn, index):
            built.append(index.name)
    return built


async def _pooled(conn: Connection) -> bool:
    """Behind a transaction pooler a session's settings would reach the next client that gets it."""
    row = await (await conn.execute("SELECT pg_catalog.pg_backend_pid() AS pid")).fetchone()
    return row is None or row["pid"] != conn.info.backend_pid


async def _build(conn: Connection, index: Index) -> bool:
    log.info("building an index ahead of the migration", index=index.name, table=index.table)
    try:
        await conn.execute(index.create.encode())
    except psycopg.Error as error:
        log.info("left to the migration", index=index.name, reason=str(error).partition("\n")[0])
        await _drop(conn, index)
        return False
    return True


async def _drop(conn: Connection, index: Index) -> None:
    name = sql.Identifier(index.schema, index.name)
    await conn.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(name))
