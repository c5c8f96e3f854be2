"""Upgrades the schema of a database to this version in one transaction.

Migrations are applied once and never changed; a ledger stores their checksums. Functions and views are
re-applied on every run. The core comes first, then each extension of Shiftboss. The ledger records the
extension that a migration belongs to, and entries of extensions that are not installed here are ignored.
Files that require a missing PostgreSQL extension are skipped with a notice.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import psycopg
from psycopg import errors

from shiftboss.db.ahead import Index, build_ahead, indexes
from shiftboss.db.connection import Connection, connect, settings_of_transaction
from shiftboss.db.sqlfiles import SqlFile, SqlTree, all_trees
from shiftboss.db.table_locks import changed_tables, lock_tables, trigger_tables
from shiftboss.model.errors import MigrationError

LOCK = 0x5817F7B055  # the advisory lock that allows one migration at a time
REPEATABLES = "functions and views"
LOCK_TIMEOUT = "60s"
SAFE_PATH = "SET LOCAL search_path = pg_catalog, pg_temp"  # overrides the role's and the database's

_LEDGER = """
CREATE SCHEMA IF NOT EXISTS shiftboss;
CREATE TABLE IF NOT EXISTS shiftboss.migrations (
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE shiftboss.migrations ADD COLUMN IF NOT EXISTS extension text;
ALTER TABLE shiftboss.migrations DROP CONSTRAINT IF EXISTS migrations_pkey;
CREATE UNIQUE INDEX IF NOT EXISTS migrations_by_extension ON shiftboss.migrations (extension, name);
"""
# The first version did not record extensions: its entries belong to the extension that has the file now.
_ADOPT = """
UPDATE shiftboss.migrations SET extension = %s
WHERE extension IS NULL AND name = ANY (%s)
"""
_RECORD = """
INSERT INTO shiftboss.migrations (extension, name, checksum) VALUES (%s, %s, %s)
ON CONFLICT (extension, name) DO UPDATE SET checksum = excluded.checksum, applied_at = clock_timestamp()
"""
_EXTENSION = """
SELECT n.nspname AS schema FROM pg_available_extensions a
LEFT JOIN pg_extension e ON e.extname = a.name
LEFT JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE a.name = %s
"""
# The GRANT statements that the current role needs before it can migrate.
_RIGHTS = """
SELECT current_user AS role, concat_ws('; ',
    CASE WHEN to_regnamespace('shiftboss') IS NULL
          AND NOT has_database_privilege(current_database(), 'CREATE')
         THEN format('GRANT CREATE ON DATABASE "%s" TO "%s"', current_database(), current_user) END,
    CASE WHEN NOT has_schema_privilege('public', 'CREATE')
         THEN format('GRANT USAGE, CREATE ON SCHEMA public TO "%s"', current_user) END) AS missing
"""
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS public\.(\w+)")
_PRESENT = """
SELECT relname AS name FROM pg_class WHERE relnamespace = to_regnamespace('public') AND relname = ANY (%s)
ORDER BY relname
"""
_PUBLIC = re.compile(r"\bpublic\.(?=vector)|(?<=OPERATOR\()public\.")
_DROP_FIRST = re.compile(r"DROP (?:FUNCTION|PROCEDURE|AGGREGATE|ROUTINE) .+\)")


@dataclass
class Migrated:
    """What a migration did, or would do in a dry run."""

    applied: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    sql: str = ""


async def migrate(url: str, *, dry_run: bool = False, trees: Sequence[SqlTree] | None = None) -> Migrated:
    """Apply pending migrations and re-apply functions and views. `dry_run` only returns the SQL."""
    built = [] if dry_run else await _build_ahead(url, trees)
    async with _connect(url) as conn:
        migration = _Migration(conn, trees)
        done = await (migration.plan() if dry_run else migration.run())
    if built:
        done.notices.append(f"built indexes without locking their tables: {', '.join(built)}")
    if not dry_run:
        await _count_history(url)
    return done


async def _build_ahead(url: str, trees: Sequence[SqlTree] | None) -> list[str]:
    """Build missing indexes of large tables before the transaction that locks the tables."""
    async with _connect(url) as conn:
        wanted = await _Migration(conn, trees).indexes()
    async with connect(url) as conn:  # CREATE INDEX CONCURRENTLY cannot run in a transaction
        return await build_ahead(conn, wanted)


async def is_current(url: str, *, trees: Sequence[SqlTree] | None = None) -> bool:
    """Return whether `migrate` would change nothing. Raises MigrationError if the schema is newer."""
    async with connect(url) as conn:
        return await is_current_on(conn, trees)


async def is_current_on(conn: Connection, trees: Sequence[SqlTree] | None = None) -> bool:
    """Return the same for an open connection."""
    async with _safely(conn):
        return await _Migration(conn, trees).is_current()


async def server_version(url: str) -> str:
    """Return the server's version, such as 18.4."""
    async with connect(url) as conn:
        row = await (await conn.execute("SELECT current_setting('server_version') AS version")).fetchone()
        return str(row["version"]) if row else ""


async def _count_history(url: str) -> None:
    """Count the tasks of a version without counters, in a separate transaction that blocks no writer."""
    async with _connect(url) as conn:
        found = await conn.execute("SELECT to_regprocedure('shiftboss.count_history()') IS NOT NULL AS here")
        if (row := await found.fetchone()) is not None and row["here"]:
            await conn.execute("SET LOCAL statement_timeout = 0")
            await conn.execute("SELECT shiftboss.count_history()")


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[Connection]:
    async with connect(url) as conn, _safely(conn):
        yield conn


@asynccontextmanager
async def _safely(conn: Connection) -> AsyncIterator[None]:
    """A transaction with our settings and our search path."""
    async with conn.transaction():
        await conn.execute(settings_of_transaction(conn))
        await conn.execute(SAFE_PATH)
        yield


class _Migration:
    def __init__(self, conn: Connection, trees: Sequence[SqlTree] | None) -> None:
        self._conn = conn
        self._trees = all_trees() if trees is None else trees
        self._done = Migrated()
        self._missing: frozenset[str] = frozenset()
        self._foreign: list[str] = []  # tables with our names, from before the first migration
        self._schemas: dict[str, str] = {}  # by required PostgreSQL extension

    async def run(self) -> Migrated:
        await self._require_rights()
        await self._conn.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        await self._execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; SET LOCAL statement_timeout = 0")
        # Functions may use functions and views that are created later.
        await self._execute("SET LOCAL check_function_bodies = off")
        await self._execute("SET LOCAL client_min_messages = warning")
        await self._execute(_LEDGER)
        for tree in self._trees:
            names = [file.name for file in tree.migrations]
            await self._conn.execute(_ADOPT, [tree.owner, [*names, REPEATABLES]])
        pending = await self._pending()
        await self._lock([file.sql for _, file in pending])
        await self._find_missing(install=True)
        self._foreign = [] if await self._ledger() else await self._tables_in_public()
        for tree, file in pending:
            if file.requires not in self._missing:
                await self._apply(file)
                await self._conn.execute(_RECORD, [tree.owner, file.name, file.checksum])
                self._done.applied.append(file.name)
        await self._reapply()
        for tree in self._trees:
            await self._conn.execute(_RECORD, [tree.owner, REPEATABLES, self._checksum(tree)])
        await self._count_unusable()
        return self._done

    async def _lock(self, migrations: list[str]) -> None:
        """Lock the tables up front: a migration needs exclusive access, re-created triggers block writes."""
        changed, made = (
            changed_tables(migrations),
            trigger_tables(file.sql for file in self._all("functions")),
        )
        await lock_tables(self._conn, changed | (made if changed else set()), "ACCESS EXCLUSIVE")
        await lock_tables(self._conn, made, "SHARE ROW EXCLUSIVE")
        await self._execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")

    async def _count_unusable(self) -> None:
        """Add a notice about rows of an older `tasks` table that no worker can run."""
        found = await self._conn.execute("SELECT to_regclass('shiftboss.unusable_tasks') IS NOT NULL AS here")
        if (row := await found.fetchone()) is None or not row["here"]:
            return
        counted = await self._conn.execute("SELECT count(*) AS n FROM shiftboss.unusable_tasks")
        if (row := await counted.fetchone()) is not None and row["n"]:
            self._done.notices.append(
                f"{row['n']} tasks cannot run, because their status is unknown or their type is empty;"
                " they stay unchanged, and `shiftboss doctor` lists them"
            )

    async def _require_rights(self) -> None:
        """Raise an error that names the missing GRANT, before a statement fails."""
        row = await (await self._conn.execute(_RIGHTS)).fetchone()
        if row and row["missing"]:
            raise MigrationError(
                f"role {row['role']} lacks privileges to create the schema",
                hint=f"ask the owner of the database to run: {row['missing']}",
                sqlstate="42501",
            )

    async def plan(self) -> Migrated:
        pending = [file for _, file in await self._pending()]
        await self._find_missing(install=False)
        repeatables = [*self._all("functions"), *self._all("views")]
        files = [*self._possible(pending), *self._possible(repeatables)]
        self._done.applied = [file.name for file in self._possible(pending)]
        parts = [
            _LEDGER.strip(),
            *(f"-- {file.name}\n{self._path(file)};\n{file.sql.strip()}" for file in files),
        ]
        self._done.sql = "\n\n".join(parts) + "\n"
        return self._done

    async def indexes(self) -> list[Index]:
        """Return the indexes of all migrations, if the database has been migrated before."""
        if not await self._ledger():
            return []
        pending = {file.name for _, file in await self._pending()}
        files = [file for file in self._all("migrations") if not file.requires]
        found = [index for file in files for index in indexes(file, file.name in pending)]
        return list({index.name: index for index in reversed(found)}.values())

    async def is_current(self) -> bool:
        pending = [file for _, file in await self._pending()]
        await self._find_missing(install=False)
        ledger = await self._ledger()
        return not self._possible(pending) and all(
            ledger.get((tree.owner, REPEATABLES)) == self._checksum(tree) for tree in self._trees
        )

    def _checksum(self, tree: SqlTree) -> str:
        return tree.repeatables_checksum(self._missing)

    def _all(self, kind: Literal["migrations", "functions", "views"]) -> list[SqlFile]:
        return [file for tree in self._trees for file in getattr(tree, kind)]

    async def _ledger(self) -> dict[tuple[str | None, str], str]:
        """Return checksums by extension and name. The first version stored no extension (None)."""
        exists = await self._conn.execute("SELECT to_regclass('shiftboss.migrations') AS name")
        if (row := await exists.fetchone()) is None or row["name"] is None:
            return {}
        rows = await self._conn.execute("SELECT to_jsonb(m) AS entry FROM shiftboss.migrations m")
        entries = [row["entry"] async for row in rows]
        return {(entry.get("extension"), entry["name"]): entry["checksum"] for entry in entries}

    async def _pending(self) -> list[tuple[SqlTree, SqlFile]]:
        """Return the migrations to apply. Raises MigrationError if the ledger does not match this code."""
        ledger = await self._ledger()
        return [(tree, file) for tree in self._trees for file in self._pending_of(tree, ledger)]

    def _pending_of(self, tree: SqlTree, ledger: dict[tuple[str | None, str], str]) -> list[SqlFile]:
        known = {file.name: file for file in tree.migrations}
        applied = {name: checksum for (owner, name), checksum in ledger.items() if owner == tree.owner}
        applied |= {name: sum for (owner, name), sum in ledger.items() if owner is None and name in known}
        if unknown := sorted(set(applied) - set(known) - {REPEATABLES}):
            raise MigrationError(
                f"the database is newer than this Shiftboss: it contains {', '.join(unknown)}",
                hint="upgrade Shiftboss to the version that migrated this database or a newer one",
            )
        for name, checksum in applied.items():
            if name in known and known[name].checksum != checksum:
                raise MigrationError(
                    f"migration {name} was changed after it was applied to this database",
                    hint="restore the file, and make the change in a new migration",
                )
        return [file for file in tree.migrations if file.name not in applied]

    async def _find_missing(self, *, install: bool) -> None:
        """Find out which required PostgreSQL extensions are missing. With `install`, try to create them."""
        files = [*self._all("migrations"), *self._all("functions"), *self._all("views")]
        missing = set()
        for name in sorted({file.requires for file in files if file.requires}):
            problem = await self._problem_with(name, install)
            if problem is None:
                continue
            missing.add(name)
            skipped = ", ".join(file.name for file in self._all("migrations") if file.requires == name)
            self._done.notices.append(
                f"{problem}, then run `shiftboss db migrate` again; skipped: {skipped or 'what needs it'}"
            )
        self._missing = frozenset(missing)

    async def _problem_with(self, name: str, install: bool) -> str | None:
        """Return why the database lacks an extension and what to do, or None if it has the extension."""
        row = await (await self._conn.execute(_EXTENSION, [name])).fetchone()
        self._schemas[name] = row["schema"] if row and row["schema"] else "public"
        if row is None:
            return f"extension {name} is not available on this server: install it"
        if row["schema"] is not None or (install and await self._create_extension(name)):
            return None
        return (
            f"this role may not create extension {name}:"
            f" have a superuser run CREATE EXTENSION {name} in this database"
        )

    async def _create_extension(self, name: str) -> bool:
        try:
            async with self._conn.transaction():
                await self._execute(f'CREATE EXTENSION IF NOT EXISTS "{name}" WITH SCHEMA public')
        except errors.InsufficientPrivilege:
            return False
        return True

    def _possible(self, files: list[SqlFile]) -> list[SqlFile]:
        return [file for file in files if file.requires not in self._missing]

    async def _reapply(self) -> None:
        """Re-apply functions, then views. What cannot be replaced is dropped first, never with CASCADE."""
        for file in self._possible(self._all("functions")):
            await self._apply_function(file)
        views = self._possible(self._all("views"))
        try:
            async with self._conn.transaction():
                for file in views:
                    await self._run_file(file)
        except (errors.InvalidTableDefinition, errors.WrongObjectType, errors.UndefinedColumn):
            await self._drop_views()
            for file in views:
                await self._apply(file)
        except psycopg.Error as error:
            raise _failure("views", error) from error

    async def _apply_function(self, file: SqlFile) -> None:
        """Apply one file, dropping each function whose signature changed, as PostgreSQL's hint suggests."""
        while True:
            try:
                async with self._conn.transaction():
                    await self._run_file(file)
                return
            except errors.InvalidFunctionDefinition as error:
                drop = _DROP_FIRST.search(error.diag.message_hint or "")
                if drop is None:
                    raise self._failure(file.name, error) from error
                await self._drop_views()
                await self._drop(drop[0])
            except psycopg.Error as error:
                raise self._failure(file.name, error) from error

    async def _drop_views(self) -> None:
        for name in reversed([name for tree in self._trees for name in tree.view_names]):
            await self._drop(f"DROP VIEW IF EXISTS {name}")

    async def _drop(self, statement: str) -> None:
        try:
            await self._execute(statement)
        except errors.DependentObjectsStillExist as error:
            raise MigrationError(
                f"{error.diag.message_primary}: {error.diag.message_detail}",
                hint="drop the dependent objects, run `shiftboss db migrate`, and create them again",
            ) from error

    async def _apply(self, file: SqlFile) -> None:
        try:
            await self._run_file(file)
        except psycopg.Error as error:
            raise self._failure(file.name, error) from error

    def _failure(self, name: str, error: psycopg.Error) -> MigrationError:
        if self._foreign and (error.sqlstate or "").startswith("42"):
            return _collision(self._foreign, error)
        return _failure(name, error)

    async def _tables_in_public(self) -> list[str]:
        """Return the tables of this schema that `public` has before the first migration."""
        ours = {name for file in self._all("migrations") for name in _TABLE.findall(file.sql)}
        rows = await self._conn.execute(_PRESENT, [sorted(ours)])
        return [row["name"] async for row in rows]

    async def _run_file(self, file: SqlFile) -> None:
        await self._execute(self._path(file))
        await self._execute(self._text(file))

    def _text(self, file: SqlFile) -> str:
        """Return the SQL of a file, with `public` replaced by the schema of the extension it requires."""
        schema = self._schemas.get(file.requires or "", "public")
        return file.sql if schema == "public" else _PUBLIC.sub(f'"{schema}".', file.sql)

    def _path(self, file: SqlFile) -> str:
        """Return the search_path for a file, including the schema of the extension it requires."""
        return SAFE_PATH.replace(",", f', "{self._schemas[file.requires]}",') if file.requires else SAFE_PATH

    async def _execute(self, sql: str) -> None:
        if sql.strip():
            await self._conn.execute(sql)


def _collision(tables: Sequence[str], error: psycopg.Error) -> MigrationError:
    names = ", ".join(f"public.{name}" for name in tables)
    return MigrationError(
        f"{names} existed before and does not fit Shiftboss's schema: {error.diag.message_primary}",
        hint="use another database for Shiftboss, or rename that table; nothing was changed",
        sqlstate=error.sqlstate,
    )


def _failure(name: str, error: psycopg.Error) -> MigrationError:
    where = f" (at character {error.diag.statement_position})" if error.diag.statement_position else ""
    hint = error.diag.message_hint or error.diag.message_detail or "nothing was changed"
    message = error.diag.message_primary or str(error)
    return MigrationError(f"{name}{where}: {message}", hint=hint, sqlstate=error.sqlstate)
