"""Upgrades the schema of a database to this version in one transaction.

Migrations are applied once and never changed; a ledger stores their checksums. Functions and views are
re-applied on every run. The core comes first, then each extension of Shiftboss. Files that require a missing
PostgreSQL extension are skipped with a notice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from shiftboss.db.ahead import Index, build_ahead, drop_helper, indexes
from shiftboss.db.apply import Applier
from shiftboss.db.connection import Connection, again, connect, settings_of_transaction
from shiftboss.db.ledger import CREATE, REPEATABLES, MigrationLedger
from shiftboss.db.required import SAFE_PATH, Required
from shiftboss.db.sqlfiles import SqlFile, SqlTree, all_trees
from shiftboss.db.table_locks import changed_tables, lock_tables, trigger_tables
from shiftboss.model.errors import MigrationError

T = TypeVar("T")

LOCK = 0x5817F7B055  # the advisory lock that allows one migration at a time
LOCK_TIMEOUT = "60s"
# Bodies are not checked: functions may use functions and views that are created later.
_SETTINGS = (
    f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; SET LOCAL statement_timeout = 0;"
    " SET LOCAL check_function_bodies = off; SET LOCAL client_min_messages = warning"
)

# The owner of the schema, if the current role cannot act as it, and the missing GRANT statements.
_RIGHTS = """
SELECT current_user AS role,
    (SELECT pg_get_userbyid(nspowner) FROM pg_namespace
     WHERE nspname = 'shiftboss' AND NOT pg_has_role(nspowner, 'USAGE')) AS owner,
    concat_ws('; ',
    CASE WHEN to_regnamespace('shiftboss') IS NULL
          AND NOT has_database_privilege(current_database(), 'CREATE')
         THEN format('GRANT CREATE ON DATABASE "%s" TO "%s"', current_database(), current_user) END,
    CASE WHEN NOT has_schema_privilege('public', 'CREATE')
         THEN format('GRANT USAGE, CREATE ON SCHEMA public TO "%s"', current_user) END) AS missing
"""
_PRESENT = """
SELECT relname AS name FROM pg_class WHERE relnamespace = to_regnamespace('public') AND relname = ANY (%s)
ORDER BY relname
"""


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
        migration = Migration(conn, trees)
        done = await (migration.plan() if dry_run else migration.run())
    if built:
        done.notices.append(f"built indexes without locking their tables: {', '.join(built)}")
    if not dry_run:
        # Both read the tasks, which the migration no longer locks. Another migration takes its locks in a
        # different order, so each has a transaction of its own, which is retried after a deadlock.
        done.notices += await again(lambda: _apart(url, _unusable))
        await again(lambda: _apart(url, _count_history))
    return done


async def _apart(url: str, do: Callable[[Connection], Awaitable[T]]) -> T:
    async with _connect(url) as conn:
        return await do(conn)


async def _build_ahead(url: str, trees: Sequence[SqlTree] | None) -> list[str]:
    """Build missing indexes of large tables before the transaction that locks the tables."""
    async with _connect(url) as conn:
        migration = Migration(conn, trees)
        await migration.require_rights()
        wanted = await migration.indexes()
    async with connect(url) as conn:  # CREATE INDEX CONCURRENTLY cannot run in a transaction
        return await build_ahead(conn, wanted)


async def is_current(url: str, *, trees: Sequence[SqlTree] | None = None) -> bool:
    """Return whether `migrate` would change nothing. Raises MigrationError if the schema is newer."""
    async with connect(url) as conn:
        return await is_current_on(conn, trees)


async def is_current_on(conn: Connection, trees: Sequence[SqlTree] | None = None) -> bool:
    """Return the same for an open connection."""
    async with _safely(conn):
        return await Migration(conn, trees).is_current()


async def server_version(url: str) -> str:
    """Return the server's version, such as 18.4."""
    async with connect(url) as conn:
        row = await (await conn.execute("SELECT current_setting('server_version') AS version")).fetchone()
        return str(row["version"]) if row else ""


async def _unusable(conn: Connection) -> list[str]:
    """Return a notice about rows of an older `tasks` table that no worker can run."""
    if not await _here(conn, "to_regclass('shiftboss.unusable_tasks')"):
        return []
    counted = await conn.execute("SELECT count(*) AS n FROM shiftboss.unusable_tasks")
    if (row := await counted.fetchone()) is None or not row["n"]:
        return []
    return [
        f"{row['n']} tasks cannot run, because their status is unknown or their type is empty;"
        " they stay unchanged, and `shiftboss doctor` lists them"
    ]


async def _count_history(conn: Connection) -> None:
    """Count the tasks of a version without counters."""
    if await _here(conn, "to_regprocedure('shiftboss.count_history()')"):
        await conn.execute("SET LOCAL statement_timeout = 0")
        await conn.execute("SELECT shiftboss.count_history()")


async def _here(conn: Connection, name: str) -> bool:
    row = await (await conn.execute(f"SELECT {name} IS NOT NULL AS here".encode())).fetchone()
    return bool(row and row["here"])


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


class Migration:
    """One run in the transaction of `conn`."""

    def __init__(self, conn: Connection, trees: Sequence[SqlTree] | None = None) -> None:
        self._conn = conn
        self._trees = all_trees() if trees is None else trees
        self._ledger = MigrationLedger(conn, self._trees)
        self._required = Required(conn)

    async def run(self) -> Migrated:
        await self._conn.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        await self._conn.execute(_SETTINGS)
        await self._ledger.create()
        done = Migrated(notices=await self._required.look(self._trees, install=True))
        pending = [
            (tree, file)
            for tree, file in await self._ledger.pending()
            if file.requires not in self._required.missing
        ]
        await self._lock([file.sql for _, file in pending])
        foreign = [] if await self._ledger.entries() else await self._tables_in_public()
        applier = Applier(self._conn, self._required, foreign)
        for tree, file in pending:
            await applier.migration(file)
            await drop_helper(self._conn, file)
            await self._ledger.record(tree, file.name, file.checksum)
            done.applied.append(file.name)
        await applier.repeatables(self._all("functions"), self._all("views"))
        for tree in self._trees:
            await self._ledger.record(tree, REPEATABLES, self._checksum(tree))
        return done

    async def _lock(self, migrations: list[str]) -> None:
        """Lock the tables up front: a migration needs exclusive access, re-created triggers block writes."""
        changed = changed_tables(migrations)
        made = trigger_tables(file.sql for file in self._all("functions"))
        await lock_tables(self._conn, changed | (made if changed else set()), "ACCESS EXCLUSIVE")
        await lock_tables(self._conn, made, "SHARE ROW EXCLUSIVE")
        await self._conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")

    async def require_rights(self) -> None:
        """Raise an error that names the owner of the schema or the missing GRANT, before anything fails."""
        row = await (await self._conn.execute(_RIGHTS)).fetchone()
        if row and row["owner"]:
            raise MigrationError(
                f"the schema belongs to role {row['owner']}, not to {row['role']}",
                hint=f"run `shiftboss db migrate` as {row['owner']}",
                sqlstate="42501",
            )
        if row and row["missing"]:
            raise MigrationError(
                f"role {row['role']} lacks privileges to create the schema",
                hint=f"ask the owner of the database to run: {row['missing']}",
                sqlstate="42501",
            )

    async def plan(self) -> Migrated:
        """Return a script for psql that does what `run` would do, and records it."""
        pending = await self._ledger.pending()
        notices = await self._required.look(self._trees, install=False)
        pending = [(tree, file) for tree, file in pending if file.requires not in self._required.missing]
        repeatables = self._required.possible([*self._all("functions"), *self._all("views")])
        files = [*(file for _, file in pending), *repeatables]
        record = [self._ledger.recorded(tree, file.name, file.checksum) for tree, file in pending]
        record += [self._ledger.recorded(tree, REPEATABLES, self._checksum(tree)) for tree in self._trees]
        parts = [f"BEGIN;\nSELECT pg_advisory_xact_lock({LOCK});\n{_SETTINGS};\n{CREATE.strip()}"]
        parts += [
            f"-- {file.name}\n{self._required.path(file)};\n{self._required.text(file).strip()}"
            for file in files
        ]
        parts += ["\n".join(record), "COMMIT;"]
        return Migrated([file.name for _, file in pending], notices, "\n\n".join(parts) + "\n")

    async def indexes(self) -> list[Index]:
        """Return the indexes of all migrations, if the database has been migrated before."""
        if not await self._ledger.entries():
            return []
        pending = {file.name for _, file in await self._ledger.pending()}
        files = [file for file in self._all("migrations") if not file.requires]
        found = [index for file in files for index in indexes(file, file.name in pending)]
        return list({index.name: index for index in found}.values())  # the latest form of each

    async def is_current(self) -> bool:
        entries = await self._ledger.entries()
        pending = [file for _, file in await self._ledger.pending(entries)]
        await self._required.look(self._trees, install=False)
        return not self._required.possible(pending) and all(
            entries.get((tree.owner, REPEATABLES)) == self._checksum(tree) for tree in self._trees
        )

    def _checksum(self, tree: SqlTree) -> str:
        return tree.repeatables_checksum(self._required.missing)

    def _all(self, kind: Literal["migrations", "functions", "views"]) -> list[SqlFile]:
        return [file for tree in self._trees for file in getattr(tree, kind)]

    async def _tables_in_public(self) -> list[str]:
        """Return the tables of this schema that `public` has before the first migration."""
        tables = {name for file in self._all("migrations") for name in file.tables}
        ours = [name.removeprefix("public.") for name in tables if name.startswith("public.")]
        rows = await self._conn.execute(_PRESENT, [sorted(ours)])
        return [row["name"] async for row in rows]
