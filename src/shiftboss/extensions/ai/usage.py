"""Buffers counts of free calls and cache lookups, and writes them to the database together."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from shiftboss.extensions.ai.records import sealed
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.log import get_logger
from shiftboss.model.codec import current
from shiftboss.model.errors import DatabaseError

log = get_logger(__name__)
FLUSH_SECONDS = 1.0
MAX_RECORDS = 1000  # until the next flush; the oldest are dropped first


@dataclass(slots=True)
class Free:
    calls: int = 0
    errors: int = 0
    tokens: int = 0
    latency_ms: float | None = None
    error: str | None = None


@dataclass(slots=True)
class CacheUse:
    hits: int = 0
    misses: int = 0
    errors: int = 0


class UsageBuffer:
    """Flushes at most once a second, and only if there is something to write."""

    def __init__(self, shared: AIEngine | None = None, keep_text: float = 0.0) -> None:
        self._shared = shared
        self._keep_text = keep_text
        self._records: deque[dict[str, Any]] = deque(maxlen=MAX_RECORDS)
        self._free: dict[str, Free] = defaultdict(Free)
        self._cache: dict[str, CacheUse] = defaultdict(CacheUse)
        self._flusher: asyncio.Task[None] | None = None
        self.total = CacheUse()

    def called(self, provider: str, tokens: int, seconds: float, error: str | None) -> None:
        free = self._free[provider]
        free.calls += 1
        free.tokens += tokens
        free.latency_ms = seconds * 1000
        if error is not None:
            free.errors += 1
            free.error = current().text(error)
        self._flush_soon()

    def looked_up(self, task_type: str, what: str) -> None:
        """Count a cache lookup; `what` is `hits`, `misses` or `errors`."""
        for use in (self._cache[task_type], self.total):
            setattr(use, what, getattr(use, what) + 1)
        self._flush_soon()

    def record(self, call: dict[str, Any]) -> None:
        """Record a call, unless it has no prompt because it is not in the sample."""
        if self._shared is not None and call["prompt"] is not None:
            self._records.append(sealed(call))
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._shared is not None and (self._flusher is None or self._flusher.done()):
            self._flusher = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        await asyncio.sleep(FLUSH_SECONDS)
        await self.flush()

    async def flush(self) -> None:
        if self._shared is None or not (self._free or self._cache or self._records):
            return
        records, self._records = list(self._records), deque(maxlen=MAX_RECORDS)
        free, self._free = self._free, defaultdict(Free)
        cache, self._cache = self._cache, defaultdict(CacheUse)
        try:
            await self._shared.ai_report(
                [_row("provider", name, counts) for name, counts in free.items()],
                [_row("task_type", name, counts) for name, counts in cache.items()],
            )
            if records:
                await self._shared.record_calls(records, self._keep_text)
        except DatabaseError as error:
            log.warning("cannot write AI usage counts", error=str(error))

    async def close(self) -> None:
        if self._flusher is not None:
            self._flusher.cancel()
        await self.flush()


def _row(key: str, name: str, counts: Free | CacheUse) -> dict[str, Any]:
    return {key: name, **{field: getattr(counts, field) for field in counts.__slots__}}
