"""Builds the indexes of a migration on large tables concurrently, before the migration runs.

A migration is a single transaction: an index built inside it blocks all writes until the commit. The
migration's own `CREATE INDEX IF NOT EXISTS` skips an index that was built here. Helper indexes let a
migration find rows without reading the whole table while it is locked; they are dropped afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import psycopg
from psycopg import sql

from shiftboss.db.connection import Connection, is_pooled
from shiftboss.db.sqlfiles import SqlFile
from shiftboss.log import get_logger

log = get_logger(__name__)

LARGE = 64 * 1024 * 1024
"""Tables of at least this many bytes are large. Smaller ones are indexed in a fraction of a second."""
_INDEX = re.compile(r"^CREATE (UNIQUE )?INDEX IF NOT EXISTS (\w+) ON (\w+)\.(\w+)([^;]*);", re.MULTILINE)
# For each wanted index: whether an earlier attempt left it invalid, whether a large table lacks it, and
# whether a large table has an older form of it that covers all rows.
_FOUND = """
SELECT w.n - 1 AS place, NOT i.indisvalid AS broken,
    large.it AND i.indexrelid IS NULL AS missing,
    large.it AND w.partial AND i.indexrelid IS NOT NULL AND i.indpred IS NULL AS outdated
FROM unnest(%s::text[], %s::text[], %s::bool[]) WITH ORDINALITY w (relation, index, partial, n)
JOIN pg_catalog.pg_class t ON t.oid = to_regclass(w.relation)
CROSS JOIN LATERAL (SELECT pg_catalog.pg_table_size(t.oid) >= %s AS it) large
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


#: By migration: the indexes that let it find rows quickly. Their predicates are those of its statements.
HELPERS = {
    "0080_locks": Index(
        "",
        "tasks_unusable_ahead",
        "public",
        "tasks",
        " (id) WHERE task_type = '' OR status NOT IN"
        " ('Queued', 'In Progress', 'Complete', 'Failed', 'Cancelled')",
    )
}


def indexes(file: SqlFile, pending: bool = True) -> list[Index]:
    """Return the indexes that can be built before this migration."""
    found = [Index(u, name, s, table, rest, pending) for u, name, s, table, rest in _INDEX.findall(file.sql)]
    return [*found, HELPERS[file.name]] if pending and file.name in HELPERS else found


async def build_ahead(conn: Connection, wanted: Sequence[Index], large: int = LARGE) -> list[str]:
    """Build indexes that large tables lack or that an earlier attempt left invalid. Return their names.

    An index that cannot be built yet, such as one on a column that the migration adds, is left to it.
    """
    # Behind a transaction pooler, session settings would leak to the next client of the session.
    if not wanted or await is_pooled(conn):
        return []
    await conn.execute(
        "SET search_path = pg_catalog, pg_temp; SET statement_timeout = 0; SET lock_timeout = '60s'"
    )
    tables = [f"{index.schema}.{index.table}" for index in wanted]
    names = [f"{index.schema}.{index.name}" for index in wanted]
    partial = [" WHERE " in " ".join(index.rest.split()) for index in wanted]
    found = await (await conn.execute(_FOUND, [tables, names, partial, large])).fetchall()
    built = []
    for row in found:
        index = wanted[row["place"]]
        if row["broken"]:
            await _drop(conn, index)
        if row["outdated"] and index.pending:
            done = await _replace(conn, index)
        else:
            done = (row["broken"] or (row["missing"] and index.pending)) and await _build(conn, index)
        if done:
            built.append(index.name)
    return built


async def drop_helper(conn: Connection, file: SqlFile) -> None:
    """Drop the helper index of a migration that has been applied."""
    if file.name in HELPERS:
        await _drop(conn, HELPERS[file.name])


async def _replace(conn: Connection, index: Index) -> bool:
    """Build the new form of an index under another name, and swap the two without blocking anybody."""
    new, old = index._replace(name=f"{index.name}_new"), index._replace(name=f"{index.name}_old")
    await _drop(conn, new)
    if not await _build(conn, new):
        return False
    async with conn.transaction():
        await _rename(conn, index, old.name)
        await _rename(conn, new, index.name)
    await conn.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(sql.Identifier(old.schema, old.name)))
    return True


async def _rename(conn: Connection, index: Index, name: str) -> None:
    former = sql.Identifier(index.schema, index.name)
    await conn.execute(sql.SQL("ALTER INDEX {} RENAME TO {}").format(former, sql.Identifier(name)))


async def _build(conn: Connection, index: Index) -> bool:
    log.info("building an index before the migration", index=index.name, table=index.table)
    try:
        await conn.execute(index.create.encode())
    except psycopg.Error as error:
        reason = str(error).partition("\n")[0]
        log.info("cannot build the index before the migration", index=index.name, reason=reason)
        await _drop(conn, index)
        return False
    return True


async def _drop(conn: Connection, index: Index) -> None:
    name = sql.Identifier(index.schema, index.name)
    await conn.execute(sql.SQL("DROP INDEX IF EXISTS {}").format(name))
