"""Wait for the database, so that a process can start while the database is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shiftboss.lifecycle.backoff import Backoff
from shiftboss.lifecycle.service import sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseUnavailable

log = get_logger(__name__)
T = TypeVar("T")


async def when_up(
    call: Callable[[], Awaitable[T]],
    on_away: Callable[[], None] = lambda: None,
    stopping: asyncio.Event | None = None,
) -> T:
    """Return the result of `call`, repeated until the database answers or `stopping` is set.

    `call` may take effect more than once if only its reply was lost. `on_away` is called before each wait.
    """
    backoff = Backoff(maximum=5.0)
    while True:
        try:
            return await call()
        except DatabaseUnavailable as error:
            if stopping is not None and stopping.is_set():
                raise
            on_away()
            log.warning("waiting for the database", reason=error.message, hint=error.hint)
            await sleep(backoff.next(), stopping or asyncio.Event())
