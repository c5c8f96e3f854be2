"""The SQL that the package carries, as values: name, text, checksum, what it requires, what it defines."""

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
_VIEW = re.compile(r"^\s*CREATE\s+(?:OR\s+REPLACE\s+)?VIEW\s+([\w.\"]+)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class SqlFile:
    """One `.sql` file. A first line `-- requires: vector` makes it depend on that extension."""

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
    def views(self) -> list[str]:
        return _VIEW.findall(self.sql)


@dataclass(frozen=True)
class SqlTree:
    """Migrations are applied once each; functions and views every time. All in order of their names."""

    migrations: list[SqlFile]
    functions: list[SqlFile]
    views: list[SqlFile]
    owner: str = CORE
    """The extension that brings it, or `core`."""

    @classmethod
    def load(cls, package: str = "shiftboss", owner: str = CORE) -> SqlTree:
        root = resources.files(package) / "sql"
        migrations, functions, views = (_files(root / name) for name in ("migrations", "functions", "views"))
        return cls(migrations, functions, views, owner)

    @property
    def repeatables(self) -> list[SqlFile]:
        return [*self.functions, *self.views]

    @property
    def view_names(self) -> list[str]:
        """Every view of `views/`, in the order in which they are made."""
        return [name for file in self.views for name in file.views]

    def repeatables_checksum(self, skipped: frozenset[str] = frozenset()) -> str:
        """One checksum of everything that is re-applied, without what needs a missing extension."""
        parts = (f"{file.name}:{file.checksum}" for file in self.repeatables if file.requires not in skipped)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def all_trees() -> list[SqlTree]:
    """The SQL of the core, then that of every extension, each after those it builds on."""
    brought = (SqlTree.load(extension.package, extension.name) for extension in extensions())
    return [SqlTree.load(), *brought]


def _files(folder: Traversable) -> list[SqlFile]:
    if not folder.is_dir():
        return []
    found = (entry for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [
        SqlFile(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    ]
