"""Bring a database's schema to this version: all of it in one transaction, one migrator at a time.

Migrations are applied once and never changed; a ledger keeps their checksums. Functions and views are
re-applied on every run. A file that requires an extension is left out, with a word, where it is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import psycopg
from psycopg import errors

from shiftboss.db.connection import Connection, connect
from shiftboss.db.sqlfiles import SqlFile, SqlTree
from shiftboss.model.errors import MigrationError

LOCK = 0x5817F7B055  # one advisory lock for every migrator of a database
REPEATABLES = "functions and views"
LOCK_TIMEOUT = "60s"

_LEDGER = """
CREATE SCHEMA IF NOT EXISTS shiftboss;
CREATE TABLE IF NOT EXISTS shiftboss.migrations (
    name       text PRIMARY KEY,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""
_RECORD = """
INSERT INTO shiftboss.migrations (name, checksum) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, applied_at = clock_timestamp()
"""
_DROP_FIRST = re.compile(r"DROP (?:FUNCTION|PROCEDURE|AGGREGATE|ROUTINE) .+\)")


@dataclass
class Migrated:
    """What a migration did, or in a dry run would do."""

    applied: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    sql: str = ""


async def migrate(url: str, *, dry_run: bool = False, tree: SqlTree | None = None) -> Migrated:
    """Apply what is missing and re-apply functions and views; `dry_run` only returns the SQL."""
    async with connect(url) as conn:
        if dry_run:
            return await _Migration(conn, tree or SqlTree.load()).plan()
        async with conn.transaction():
            return await _Migration(conn, tree or SqlTree.load()).run()


async def is_current(url: str, *, tree: SqlTree | None = None) -> bool:
    """True if `migrate` would change nothing. Refuses a schema that is newer than this code."""
    async with connect(url) as conn:
        return await _Migration(conn, tree or SqlTree.load()).is_current()


async def server_version(url: str) -> str:
    """The server's version, such as 18.4."""
    async with connect(url) as conn:
        row = await (await conn.execute("SELECT current_setting('server_version') AS version")).fetchone()
        return str(row["version"]) if row else ""


class _Migration:
    def __init__(self, conn: Connection, tree: SqlTree) -> None:
        self._conn = conn
        self._tree = tree
        self._done = Migrated()
        self._missing: frozenset[str] = frozenset()

    async def run(self) -> Migrated:
        await self._conn.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        await self._execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        # Functions may call each other and views in any order; the tests call them all.
        await self._execute("SET LOCAL check_function_bodies = off")
        await self._execute("SET LOCAL client_min_messages = warning")
        await self._execute(_LEDGER)
        pending = await self._pending()
        await self._find_missing(install=True)
        for file in self._possible(pending):
            await self._apply(file)
            await self._conn.execute(_RECORD, [file.name, file.checksum])
            self._done.applied.append(file.name)
        await self._reapply()
        await self._conn.execute(_RECORD, [REPEATABLES, self._tree.repeatables_checksum(self._missing)])
        return self._done

    async def plan(self) -> Migrated:
        pending = await self._pending()
        await self._find_missing(install=False)
        files = [*self._possible(pending), *self._possible(self._tree.repeatables)]
        self._done.applied = [file.name for file in self._possible(pending)]
        parts = [_LEDGER.strip(), *(f"-- {file.name}\n{file.sql.strip()}" for file in files)]
        self._done.sql = "\n\n".join(parts) + "\n"
        return self._done

    async def is_current(self) -> bool:
        pending = await self._pending()
        await self._find_missing(install=False)
        ledger = await self._ledger()
        return not self._possible(pending) and ledger.get(REPEATABLES) == self._tree.repeatables_checksum(
            self._missing
        )

    async def _ledger(self) -> dict[str, str]:
        exists = await self._conn.execute("SELECT to_regclass('shiftboss.migrations') AS name")
        if (row := await exists.fetchone()) is None or row["name"] is None:
            return {}
        rows = await self._conn.execute("SELECT name, checksum FROM shiftboss.migrations")
        return {row["name"]: row["checksum"] async for row in rows}

    async def _pending(self) -> list[SqlFile]:
        """Migrations not applied yet; refuses a ledger that does not fit this code."""
        ledger = await self._ledger()
        known = {file.name: file for file in self._tree.migrations}
        if unknown := sorted(set(ledger) - set(known) - {REPEATABLES}):
            raise MigrationError(
                f"the database is newer than this Shiftboss: it holds {', '.join(unknown)}",
                hint="upgrade Shiftboss to the version that migrated this database, or newer",
            )
        for name, checksum in ledger.items():
            if name in known and known[name].checksum != checksum:
                raise MigrationError(
                    f"migration {name} was changed after it had been applied to this database",
                    hint="put the file back as it was, and make the change in a new migration",
                )
        return [file for file in self._tree.migrations if file.name not in ledger]

    async def _find_missing(self, *, install: bool) -> None:
        """Which required extensions this server lacks; those it offers are installed."""
        files = [*self._tree.migrations, *self._tree.repeatables]
        wanted = sorted({file.requires for file in files if file.requires})
        missing = [name for name in wanted if not await self._has_extension(name, install=install)]
        self._missing = frozenset(missing)
        for name in missing:
            left_out = ", ".join(file.name for file in self._tree.migrations if file.requires == name)
            self._done.notices.append(
                f"extension {name} is not available on this server: left out {left_out or 'what needs it'}; "
                "install it and run `shiftboss db migrate` again"
            )

    async def _has_extension(self, name: str, *, install: bool) -> bool:
        query = "SELECT installed_version AS installed FROM pg_available_extensions WHERE name = %s"
        row = await (await self._conn.execute(query, [name])).fetchone()
        if row is None or row["installed"] is not None or not install:
            return row is not None
        try:
            async with self._conn.transaction():
                await self._execute(f'CREATE EXTENSION IF NOT EXISTS "{name}" WITH SCHEMA public')
        except errors.InsufficientPrivilege:
            return False
        return True

    def _possible(self, files: list[SqlFile]) -> list[SqlFile]:
        return [file for file in files if file.requires not in self._missing]

    async def _reapply(self) -> None:
        """Functions, then views. What can not be replaced in place is dropped first, never by CASCADE."""
        for file in self._possible(self._tree.functions):
            await self._apply_function(file)
        views = self._possible(self._tree.views)
        try:
            async with self._conn.transaction():
                for file in views:
                    await self._execute(file.sql)
        except (errors.InvalidTableDefinition, errors.WrongObjectType, errors.UndefinedColumn):
            await self._drop_views()
            for file in views:
                await self._apply(file)
        except psycopg.Error as error:
            raise _failure("views", error) from error

    async def _apply_function(self, file: SqlFile) -> None:
        """Apply one file; PostgreSQL's hint names each function whose result or parameters changed."""
        while True:
            try:
                async with self._conn.transaction():
                    await self._execute(file.sql)
                return
            except errors.InvalidFunctionDefinition as error:
                drop = _DROP_FIRST.search(error.diag.message_hint or "")
                if drop is None:
                    raise _failure(file.name, error) from error
                await self._drop_views()
                await self._drop(drop[0])
            except psycopg.Error as error:
                raise _failure(file.name, error) from error

    async def _drop_views(self) -> None:
        for name in reversed(self._tree.view_names):
            await self._drop(f"DROP VIEW IF EXISTS {name}")

    async def _drop(self, statement: str) -> None:
        try:
            await self._execute(statement)
        except errors.DependentObjectsStillExist as error:
            raise MigrationError(
                f"{error.diag.message_primary}: {error.diag.message_detail}",
                hint="drop what depends on it, migrate, and make it again",
            ) from error

    async def _apply(self, file: SqlFile) -> None:
        try:
            await self._execute(file.sql)
        except psycopg.Error as error:
            raise _failure(file.name, error) from error

    async def _execute(self, sql: str) -> None:
        if sql.strip():
            await self._conn.execute(sql)


def _failure(name: str, error: psycopg.Error) -> MigrationError:
    where = f" (at character {error.diag.statement_position})" if error.diag.statement_position else ""
    hint = error.diag.message_hint or error.diag.message_detail or "nothing was changed"
    message = error.diag.message_primary or str(error)
    return MigrationError(f"{name}{where}: {message}", hint=hint, sqlstate=error.sqlstate)
