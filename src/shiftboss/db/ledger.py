"""The ledger of migrations: which files of the core and of each extension a database has, with checksums.

Entries of extensions that are not installed here are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from shiftboss.db.connection import Connection
from shiftboss.db.sqlfiles import SqlFile, SqlTree
from shiftboss.model.errors import MigrationError

REPEATABLES = "functions and views"
CREATE = """
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
Entries = dict[tuple[str | None, str], str]


class MigrationLedger:
    def __init__(self, conn: Connection, trees: Sequence[SqlTree]) -> None:
        self._conn = conn
        self._trees = trees

    async def create(self) -> None:
        """Create the ledger, or bring that of an older version up to date."""
        index = "SELECT to_regclass('shiftboss.migrations_by_extension') IS NULL AS missing"
        row = await (await self._conn.execute(index)).fetchone()
        if row and row["missing"]:  # ALTER TABLE would block processes that start meanwhile
            await self._conn.execute(CREATE)
        for tree in self._trees:
            names = [file.name for file in tree.migrations]
            await self._conn.execute(_ADOPT, [tree.owner, [*names, REPEATABLES]])

    async def record(self, tree: SqlTree, name: str, checksum: str) -> None:
        await self._conn.execute(_RECORD, [tree.owner, name, checksum])

    def recorded(self, tree: SqlTree, name: str, checksum: str) -> str:
        """Return the statement of `record` as text."""
        return _RECORD.strip().replace("%s", "'{}'").format(tree.owner, name, checksum) + ";"

    async def entries(self) -> Entries:
        """Return checksums by extension and name. The first version stored no extension (None)."""
        exists = await self._conn.execute("SELECT to_regclass('shiftboss.migrations') AS name")
        if (row := await exists.fetchone()) is None or row["name"] is None:
            return {}
        rows = await self._conn.execute("SELECT to_jsonb(m) AS entry FROM shiftboss.migrations m")
        entries = [row["entry"] async for row in rows]
        return {(entry.get("extension"), entry["name"]): entry["checksum"] for entry in entries}

    async def pending(self, entries: Entries | None = None) -> list[tuple[SqlTree, SqlFile]]:
        """Return the migrations to apply. Raises MigrationError if the ledger does not match this code."""
        entries = await self.entries() if entries is None else entries
        return [(tree, file) for tree in self._trees for file in _pending_of(tree, entries)]


def _pending_of(tree: SqlTree, entries: Entries) -> list[SqlFile]:
    known = {file.name: file for file in tree.migrations}
    applied = {name: checksum for (owner, name), checksum in entries.items() if owner == tree.owner}
    applied |= {name: sum for (owner, name), sum in entries.items() if owner is None and name in known}
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
