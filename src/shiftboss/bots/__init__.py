"""Bots: long jobs over a places directory, and users' own. Calls ai, db and the worker's handler API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shiftboss.bots.registry import bot
    from shiftboss.bots.run import Run

__all__ = ["Run", "bot"]


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that `python -m shiftboss.bots.discovery` does not import itself twice.
    if name == "bot":
        from shiftboss.bots.registry import bot

        return bot
    if name == "Run":
        from shiftboss.bots.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
