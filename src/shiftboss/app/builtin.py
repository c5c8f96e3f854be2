"""The app of everything Shiftboss does by itself: what `shiftboss up` runs when no app is named."""

from __future__ import annotations

from importlib import import_module

from shiftboss.app.app import App
from shiftboss.worker.handlers import Handlers

ROOMS = {
    "shiftboss.journal.handlers": "handlers",
    "shiftboss.bots.app": "handlers",
    "shiftboss.vectorizer.handlers": "handlers",
}


def build() -> App:
    """Of each room whose packages are installed, its handlers."""
    app = App("shiftboss")
    for module, name in ROOMS.items():
        try:
            found = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("shiftboss"):
                raise
            continue  # an extra that is not installed
        if isinstance(found, Handlers):
            app.include(found)
    return app


fleet = build()
