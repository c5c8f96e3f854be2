"""The event loop of busy processes."""

from __future__ import annotations

import asyncio


def fast_loop() -> type[asyncio.AbstractEventLoop] | None:
    """Return uvloop's event loop, or None if it is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
