"""The default app of `shiftboss up`: the handlers of all installed extensions."""

from __future__ import annotations

from shiftboss.app.app import App
from shiftboss.extension import contributions


def build() -> App:
    """Build an app with the handlers of every extension whose packages are installed."""
    app = App("shiftboss")
    for handlers in contributions("handlers"):
        app.include(handlers)
    return app


fleet = build()
