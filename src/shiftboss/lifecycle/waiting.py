"""Wait for a database that is away: what runs for long and starts meanwhile must not end for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shiftboss.lifecycle.backoff import Backoff
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseUnavailable

log = get_logger(__name__)
T = TypeVar("T")


async def when_up(call: Callable[[], Awaitable[T]], on_away: Callable[[], None] = lambda: None) -> T:
    """What `call` returns, tried until the database answers; the log says so, and `on_away` hears of it."""
    backoff = Backoff(maximum=5.0)
    while True:
        try:
            return await call()
        except DatabaseUnavailable as error:
            on_away()
            log.warning("waiting for the database", reason=error.message, hint=error.hint)
            await asyncio.sleep(backoff.next())
