"""The app that `shiftboss up` runs when it is given none: the handlers of all extensions."""

from __future__ import annotations

from shiftboss.app.app import App
from shiftboss.extension import contributions


def build() -> App:
    """One app with the handlers of every extension whose packages are installed."""
    app = App("shiftboss")
    for handlers in contributions("handlers"):
        app.include(handlers)
    return app


fleet = build()
