"""PostgreSQL access: pool, migrations, embedded server, and one class per family of SQL functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shiftboss.db.database import Connection, Database, Row
    from shiftboss.db.sync import SyncDatabase

__all__ = ["Connection", "Database", "Row", "SyncDatabase"]


def __getattr__(name: str) -> Any:
    # The driver is loaded on first use, because the embedded server's keeper and `--help` do not need it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{'sync' if name == 'SyncDatabase' else 'database'}"), name)
