"""The SQL files of the core and of extensions."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable

from shiftboss.extension import extensions

CORE = "core"

_REQUIRES = re.compile(r"--\s*requires:\s*(\w+)")
_TABLE = re.compile(r"^\s*CREATE (?:UNLOGGED )?TABLE IF NOT EXISTS (\w+\.\w+)", re.MULTILINE)
_VIEW = re.compile(r"^\s*CREATE\s+(?:OR\s+REPLACE\s+)?VIEW\s+([\w.\"]+)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class SqlFile:
    """One `.sql` file. A first line `-- requires: vector` makes it depend on that PostgreSQL extension."""

    name: str
    sql: str

    @cached_property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.replace("\r\n", "\n").encode()).hexdigest()

    @cached_property
    def requires(self) -> str | None:
        found = _REQUIRES.match(self.sql)
        return found[1] if found else None

    @cached_property
    def tables(self) -> list[str]:
        """The tables that the file creates, with their schemas."""
        return _TABLE.findall(self.sql)

    @cached_property
    def views(self) -> list[str]:
        return _VIEW.findall(self.sql)


@dataclass(frozen=True)
class SqlTree:
    """The SQL files of one package, in order of name. Migrations run once, functions and views every time."""

    migrations: list[SqlFile]
    functions: list[SqlFile]
    views: list[SqlFile]
    owner: str = CORE
    """The name of the extension that contains the files, or `core`."""

    @classmethod
    def load(cls, package: str = "shiftboss", owner: str = CORE) -> SqlTree:
        root = resources.files(package) / "sql"
        migrations, functions, views = (_files(root / name) for name in ("migrations", "functions", "views"))
        return cls(migrations, functions, views, owner)

    @property
    def repeatables(self) -> list[SqlFile]:
        return [*self.functions, *self.views]

    def repeatables_checksum(self, skipped: frozenset[str] = frozenset()) -> str:
        """Return one checksum of all functions and views, except those that require a skipped extension."""
        parts = (f"{file.name}:{file.checksum}" for file in self.repeatables if file.requires not in skipped)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def all_trees() -> list[SqlTree]:
    """Return the SQL of the core, then that of each extension, after those it depends on."""
    return [SqlTree.load(), *(SqlTree.load(one.package, one.name) for one in extensions())]


def _files(folder: Traversable) -> list[SqlFile]:
    if not folder.is_dir():
        return []
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [
        SqlFile(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    ]
