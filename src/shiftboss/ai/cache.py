"""Results by content: in PostgreSQL, or in Redis. A cache that is slow or broken counts as a miss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import structlog

from shiftboss.ai.tally import Tally
from shiftboss.db.ai import AIEngine
from shiftboss.model.errors import ConfigError
from shiftboss.model.settings_ai import CacheSettings

log = structlog.get_logger()
ResultT = TypeVar("ResultT")
REST = 5.0  # seconds for which a broken cache is left alone


@dataclass(frozen=True, slots=True)
class Taken:
    """hit: `value` is there. mine: make it, then put or release it. wait: another is making it."""

    state: str
    value: dict[str, Any] | None = None


MINE = Taken("mine")


class Store(Protocol):
    async def get(self, key: str) -> dict[str, Any] | None: ...
    async def take(self, key: str, task_type: str, lease: float) -> Taken: ...
    async def put(self, key: str, task_type: str, value: dict[str, Any], ttl: float) -> None: ...
    async def release(self, key: str) -> None: ...
    async def close(self) -> None: ...


class PostgresStore:
    def __init__(self, shared: AIEngine) -> None:
        self._shared = shared
        self._owner = uuid4()

    async def get(self, key: str) -> dict[str, Any] | None:
        return await self._shared.ai_cache_get(key)

    async def take(self, key: str, task_type: str, lease: float) -> Taken:
        return Taken(*await self._shared.ai_cache_take(key, task_type, self._owner, lease))

    async def put(self, key: str, task_type: str, value: dict[str, Any], ttl: float) -> None:
        await self._shared.ai_cache_put(key, task_type, value, ttl)

    async def release(self, key: str) -> None:
        await self._shared.ai_cache_release(key, self._owner)

    async def close(self) -> None:
        return None


class Cache:
    """A store that never fails its caller, and counts hits and misses."""

    def __init__(self, store: Store | None, settings: CacheSettings, tally: Tally) -> None:
        self._store = store
        self._settings = settings
        self._tally = tally
        self._resting_until = 0.0

    async def take(self, key: str, task_type: str, lease: float | None) -> Taken:
        """Look `key` up; with a lease, also claim the making of it for the whole fleet."""
        if self._store is None:
            return MINE
        looked = self._look(self._store, key, task_type, lease)
        taken = await self._safely(looked, task_type) or MINE
        if taken.state != "wait":
            self._tally.looked_up(task_type, "hits" if taken.state == "hit" else "misses")
        return taken

    @staticmethod
    async def _look(store: Store, key: str, task_type: str, lease: float | None) -> Taken:
        if lease is not None:
            return await store.take(key, task_type, lease)
        value = await store.get(key)
        return MINE if value is None else Taken("hit", value)

    async def put(self, key: str, task_type: str, value: dict[str, Any], *, stand_in: bool) -> None:
        ttl = self._settings.ttl.get(task_type, self._settings.default_ttl)
        if stand_in:
            ttl = min(ttl, self._settings.stand_in_ttl)
        if self._store is not None:
            await self._safely(self._store.put(key, task_type, value, ttl), task_type)

    async def release(self, key: str, task_type: str) -> None:
        if self._store is not None:
            await self._safely(self._store.release(key), task_type)

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    async def _safely(self, work: Coroutine[Any, Any, ResultT], task_type: str) -> ResultT | None:
        if time.monotonic() < self._resting_until:
            work.close()
            return None
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await work
        except Exception as error:
            self._tally.looked_up(task_type, "errors")
            if time.monotonic() >= self._resting_until:  # those that were under way fail with it: say it once
                log.warning(
                    "AI cache does not work, going on without it", error=str(error) or type(error).__name__
                )
            self._resting_until = time.monotonic() + REST
            return None


def open_store(settings: CacheSettings, shared: AIEngine | None) -> Store | None:
    if settings.backend == "redis":
        if settings.redis_url is None:
            raise ConfigError("ai.cache.backend is redis, but ai.cache.redis_url is not set")
        from shiftboss.ai.providers.redis import RedisStore

        return RedisStore(settings.redis_url.get_secret_value())
    if settings.backend == "off" or shared is None:
        return None
    return PostgresStore(shared)
