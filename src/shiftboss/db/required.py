"""The PostgreSQL extensions that SQL files require: which are missing, and in which schema the others are."""

from __future__ import annotations

import re
from collections.abc import Sequence

from psycopg import errors

from shiftboss.db.connection import Connection
from shiftboss.db.sqlfiles import SqlFile, SqlTree

SAFE_PATH = "SET LOCAL search_path = pg_catalog, pg_temp"  # overrides the role's and the database's
_EXTENSION = """
SELECT n.nspname AS schema FROM pg_available_extensions a
LEFT JOIN pg_extension e ON e.extname = a.name
LEFT JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE a.name = %s
"""
_PUBLIC = re.compile(r"\bpublic\.(?=vector)|(?<=OPERATOR\()public\.")


class Required:
    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._schemas: dict[str, str] = {}
        self.missing: frozenset[str] = frozenset()

    async def look(self, trees: Sequence[SqlTree], *, install: bool) -> list[str]:
        """Find missing extensions, and return a notice about each. With `install`, try to create them."""
        migrations = [file for tree in trees for file in tree.migrations]
        files = [*migrations, *(file for tree in trees for file in tree.repeatables)]
        notices = {}
        for name in sorted({file.requires for file in files if file.requires}):
            if (problem := await self._problem_with(name, install)) is not None:
                skipped = ", ".join(file.name for file in migrations if file.requires == name)
                advice = f"then run `shiftboss db migrate` again; skipped: {skipped or 'what needs it'}"
                notices[name] = f"{problem}, {advice}"
        self.missing = frozenset(notices)
        return list(notices.values())

    async def _problem_with(self, name: str, install: bool) -> str | None:
        """Return why the database lacks an extension and what to do, or None if it has the extension."""
        row = await (await self._conn.execute(_EXTENSION, [name])).fetchone()
        self._schemas[name] = row["schema"] if row and row["schema"] else "public"
        if row is None:
            return f"extension {name} is not available on this server: to use what needs it, install it"
        if row["schema"] is not None or (install and await self._create(name)):
            return None
        return (
            f"this role may not create extension {name}:"
            f" have a superuser run CREATE EXTENSION {name} in this database"
        )

    async def _create(self, name: str) -> bool:
        try:
            async with self._conn.transaction():
                await self._conn.execute(f'CREATE EXTENSION IF NOT EXISTS "{name}" WITH SCHEMA public')
        except errors.InsufficientPrivilege:
            return False
        return True

    def possible(self, files: Sequence[SqlFile]) -> list[SqlFile]:
        """Return the files that do not require a missing extension."""
        return [file for file in files if file.requires not in self.missing]

    def text(self, file: SqlFile) -> str:
        """Return the SQL of a file, with `public` replaced by the schema of the extension it requires."""
        schema = self._schemas.get(file.requires or "", "public")
        return file.sql if schema == "public" else _PUBLIC.sub(f'"{schema}".', file.sql)

    def path(self, file: SqlFile) -> str:
        """Return the search_path for a file, including the schema of the extension it requires."""
        return SAFE_PATH.replace(",", f', "{self._schemas[file.requires]}",') if file.requires else SAFE_PATH
