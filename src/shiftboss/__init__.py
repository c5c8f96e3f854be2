"""Shiftboss: a worker fleet on the PostgreSQL you already have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shiftboss.app import App, Handle, chain, group
    from shiftboss.model.errors import (
        Defer,
        GiveUp,
        ResultTimeout,
        Retry,
        TaskCancelled,
        TaskFailed,
        WaitTimeout,
    )
    from shiftboss.model.step import StepRetry, StepTerms
    from shiftboss.worker.batches import Batch
    from shiftboss.worker.blocking import SyncContext
    from shiftboss.worker.context import Context
    from shiftboss.worker.middleware import inject
    from shiftboss.worker.stepped import step

__version__ = "0.1.0"
__all__ = [
    "App", "Batch", "Context", "Defer", "GiveUp", "Handle", "ResultTimeout", "Retry", "StepRetry",
    "StepTerms", "SyncContext", "TaskCancelled", "TaskFailed", "WaitTimeout", "__version__", "chain",
    "group", "inject", "step",
]  # fmt: skip

_HOMES = {
    "App": "shiftboss.app",
    "Handle": "shiftboss.app",
    "chain": "shiftboss.app",
    "group": "shiftboss.app",
    "Batch": "shiftboss.worker.batches",
    "Context": "shiftboss.worker.context",
    "inject": "shiftboss.worker.middleware",
    "Defer": "shiftboss.model.errors",
    "GiveUp": "shiftboss.model.errors",
    "ResultTimeout": "shiftboss.model.errors",
    "Retry": "shiftboss.model.errors",
    "TaskCancelled": "shiftboss.model.errors",
    "TaskFailed": "shiftboss.model.errors",
    "WaitTimeout": "shiftboss.model.errors",
    "StepRetry": "shiftboss.model.step",
    "StepTerms": "shiftboss.model.step",
    "SyncContext": "shiftboss.worker.blocking",
    "step": "shiftboss.worker.stepped",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> Any:
    # Loaded on first use: `import shiftboss` and `shiftboss --help` stay light.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
