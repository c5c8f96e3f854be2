"""An application: bots, long jobs that maintain a directory of places, and a decorator for other bots."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shiftboss.extension import Command, Extension

if TYPE_CHECKING:
    from shiftboss.extensions.bots.registry import bot
    from shiftboss.extensions.bots.run import Run

__all__ = ["Run", "bot", "extension"]

extension = Extension(
    name="bots",
    package=__name__,
    tables=("places",),
    extra="admin",
    after=("runs", "ai"),
    settings={"bots": f"{__name__}.settings:BotsSettings"},
    families={"places": f"{__name__}.places:Places"},
    handlers=(f"{__name__}.app:handlers",),
    commands={
        "bot": Command(f"{__name__}.cli:app", "run a bot in the foreground", "admin"),
        "runs start": Command(f"{__name__}.cli:start", "start a run of a bot", "admin", open=True),
        "runs retry": Command(f"{__name__}.cli:retry", "retry a run that has ended", "admin"),
    },
    pages=(f"{__name__}.page:PAGES",),
    routes=(f"{__name__}.api:of_runs", f"{__name__}.api:of_places"),
)


def __getattr__(name: str) -> Any:
    # Import lazily: every command loads this module.
    if name not in ("Run", "bot"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{'registry' if name == 'bot' else 'run'}")
    return getattr(module, name)
