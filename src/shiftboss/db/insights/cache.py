"""A cache for query results whose lifetime grows with their cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cached(Generic[T]):
    """Caches a result that took t seconds for `times` × t, so that reads use a bounded share of a core.

    Concurrent callers share one computation.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], times: float = 20.0) -> None:
        self._make = make
        self._times = times
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._until = 0.0

    async def get(self, *, fresh: bool = False) -> T:
        async with self._lock:
            if self._value is None or fresh or time.monotonic() >= self._until:
                began = time.monotonic()
                self._value = await self._make()
                self._until = time.monotonic() + self._times * (time.monotonic() - began)
            return self._value
