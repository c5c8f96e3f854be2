"""Takes all table locks of a migration at once, before it changes anything.

Running sessions lock tables in other orders than a migration, so taking locks one by one would deadlock. Each
wait ends before the server checks for deadlocks. Then all locks are released and tried again. If autovacuum
holds a lock, the wait is longer, because PostgreSQL cancels autovacuum when it checks for deadlocks.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterable

from psycopg import errors, sql

from shiftboss.db.connection import Connection
from shiftboss.model.errors import MigrationError

PATIENCE = 60.0
_CHANGED = re.compile(
    r"^\s*(?:ALTER TABLE|UPDATE|INSERT INTO|DELETE FROM|CREATE (?:UNIQUE )?INDEX IF NOT EXISTS \w+ ON)"
    r"\s+(?:IF EXISTS\s+)?(?:ONLY\s+)?(\w+\.\w+)",
    re.MULTILINE,
)
_TRIGGER = re.compile(r"^CREATE (?:OR REPLACE )?TRIGGER [^;]*? ON (\w+\.\w+)", re.MULTILINE)
_TABLES = """
SELECT n.nspname AS schema, c.relname AS name, c.oid FROM unnest(%s::text[]) w (name)
JOIN pg_class c ON c.oid = to_regclass(w.name) AND c.relkind IN ('r', 'p')
JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY 1, 2
"""
_WAIT = "SELECT extract(epoch FROM current_setting('deadlock_timeout')::interval) / 2 AS seconds"
# Only processes of autovacuum have a database and no user. An ordinary role does not see their backend_type.
_VACUUMED = """
SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.relation = ANY (%s) AND l.granted AND a.datid IS NOT NULL AND a.usesysid IS NULL) AS vacuumed
"""
_LONG_WAITS = 3  # they delay other sessions, and autovacuum against wraparound does not yield


def changed_tables(migrations: Iterable[str]) -> set[str]:
    """Return the tables that these migrations change or create."""
    return {name for text in migrations for name in _CHANGED.findall(text)}


def trigger_tables(functions: Iterable[str]) -> set[str]:
    """Return the tables whose triggers are re-created with the functions."""
    return {name for text in functions for name in _TRIGGER.findall(text)}


async def lock_tables(conn: Connection, names: Iterable[str], mode: str, patience: float = PATIENCE) -> None:
    """Lock the existing tables until the transaction ends. Raises MigrationError after `patience` seconds."""
    found = await (await conn.execute(_TABLES, [sorted(names)])).fetchall()
    if not found:
        return
    tables = sql.SQL(", ").join(sql.Identifier(row["schema"], row["name"]) for row in found)
    lock = sql.SQL("LOCK TABLE {} IN {} MODE").format(tables, sql.SQL(mode))
    row = await (await conn.execute(_WAIT)).fetchone()
    half = float(row["seconds"]) if row else 0.5
    wait, long_waits = min(half, 0.5), _LONG_WAITS
    deadline = time.monotonic() + patience
    while not await _locked(conn, lock, wait):
        wait = min(half, 0.5)
        if long_waits and await _vacuumed(conn, [table["oid"] for table in found]):
            wait, long_waits = 4 * half, long_waits - 1  # after deadlock_timeout, autovacuum is cancelled
        if time.monotonic() > deadline:
            raise MigrationError(
                f"other transactions locked the tables for {patience:.0f} seconds: nothing was changed",
                hint="end long transactions (see pg_stat_activity), then run `shiftboss db migrate` again",
            )
        await asyncio.sleep(random.uniform(0.2, 1.0))  # let other sessions proceed


async def _vacuumed(conn: Connection, tables: list[int]) -> bool:
    row = await (await conn.execute(_VACUUMED, [tables])).fetchone()
    return bool(row and row["vacuumed"])


async def _locked(conn: Connection, lock: sql.Composed, wait: float) -> bool:
    await conn.execute("SELECT set_config('lock_timeout', %s, true)", [f"{max(int(wait * 1000), 1)}ms"])
    try:
        async with conn.transaction():
            await conn.execute(lock)
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        return False
    return True
