"""Shiftboss: a worker fleet on the PostgreSQL you already have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shiftboss.app import App, Handle, chain, group
    from shiftboss.model.errors import Defer
    from shiftboss.worker.context import Context

__version__ = "0.1.0"
__all__ = ["App", "Context", "Defer", "Handle", "__version__", "chain", "group"]

_HOMES = {
    "App": "shiftboss.app",
    "Handle": "shiftboss.app",
    "chain": "shiftboss.app",
    "group": "shiftboss.app",
    "Context": "shiftboss.worker.context",
    "Defer": "shiftboss.model.errors",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: `import shiftboss` and `shiftboss --help` stay light.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
