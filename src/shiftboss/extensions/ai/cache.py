"""Caches answers and vectors by content, in PostgreSQL or Redis, encrypted if there is a key.

A slow or broken cache counts as a miss, and so does a value whose key this process does not have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from shiftboss.extensions.ai.secrets import redact, remember_secret
from shiftboss.extensions.ai.settings import CacheSettings
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.extensions.ai.usage import UsageBuffer
from shiftboss.log import get_logger
from shiftboss.model.codec import Sealed, current
from shiftboss.model.errors import ConfigError

if TYPE_CHECKING:
    from shiftboss.extensions.ai.providers.redis import RedisStore

    Store = AIEngine | RedisStore

log = get_logger(__name__)
ResultT = TypeVar("ResultT")
RETRY_AFTER = 5.0  # seconds for which a broken cache is not used


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of a lookup.

    `hit`: `value` is set. `mine`: the caller must compute the value, then put or release it. `wait`: another
    process is computing it.
    """

    state: str
    value: dict[str, Any] | None = None


MINE = Taken("mine")


class Cache:
    """Counts hits and misses, and never raises errors of the store."""

    def __init__(self, store: Store | None, settings: CacheSettings, usage_buffer: UsageBuffer) -> None:
        self._store = store
        self._owner = uuid4()
        self._settings = settings
        self._usage_buffer = usage_buffer
        self._disabled_until = 0.0

    async def take(self, key: str, task_type: str, lease: float | None) -> Taken:
        """Look up `key`; with a lease, also claim the computation of its value for the whole fleet."""
        if self._store is None:
            return MINE
        looked = self._look(self._store, key, task_type, lease)
        taken = await self._safely(looked, task_type) or MINE
        if taken.state == "hit":
            value = _opened(taken.value)
            taken = MINE if value is None else Taken("hit", value)
        if taken.state != "wait":
            self._usage_buffer.looked_up(task_type, "hits" if taken.state == "hit" else "misses")
        return taken

    async def _look(self, store: Store, key: str, task_type: str, lease: float | None) -> Taken:
        if lease is not None:
            return Taken(*await store.ai_cache_take(key, task_type, self._owner, lease))
        value = await store.ai_cache_get(key)
        return MINE if value is None else Taken("hit", value)

    async def get_many(self, keys: Sequence[str], task_type: str) -> dict[str, Any]:
        if self._store is None:
            return {}
        stored = await self._safely(self._store.ai_cache_get_many(keys), task_type) or {}
        found = {key: value for key, one in stored.items() if (value := _opened(one)) is not None}
        for key in keys:
            self._usage_buffer.looked_up(task_type, "hits" if key in found else "misses")
        return found

    async def put_many(self, values: Mapping[str, Any], task_type: str) -> None:
        if self._store is not None and values:
            sealed = {key: current().value(value) for key, value in values.items()}
            await self._safely(
                self._store.ai_cache_put_many(sealed, task_type, self._ttl(task_type)), task_type
            )

    def _ttl(self, task_type: str) -> float:
        return self._settings.ttl.get(task_type, self._settings.default_ttl)

    async def put(self, key: str, task_type: str, value: dict[str, Any], *, stand_in: bool) -> None:
        ttl = self._ttl(task_type)
        if stand_in:
            ttl = min(ttl, self._settings.stand_in_ttl)
        if self._store is not None:
            await self._safely(
                self._store.ai_cache_put(key, task_type, current().value(value), ttl), task_type
            )

    async def release(self, key: str, task_type: str) -> None:
        if self._store is not None:
            await self._safely(self._store.ai_cache_release(key, self._owner), task_type)

    async def close(self) -> None:
        if self._store is not None and not isinstance(self._store, AIEngine):
            await self._store.close()

    async def _safely(self, work: Coroutine[Any, Any, ResultT], task_type: str) -> ResultT | None:
        if time.monotonic() < self._disabled_until:
            work.close()
            return None
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await work
        except Exception as error:
            self._usage_buffer.looked_up(task_type, "errors")
            if time.monotonic() >= self._disabled_until:  # concurrent requests fail as well: log it once
                message = redact(str(error)) or type(error).__name__
                log.warning("AI cache unavailable, continuing without it", error=message)
            self._disabled_until = time.monotonic() + RETRY_AFTER
            return None


def _opened(value: Any) -> Any:
    opened = current().open(value)
    return None if isinstance(opened, Sealed) else opened


def open_store(settings: CacheSettings, shared: AIEngine | None) -> Store | None:
    if settings.backend == "redis":
        if settings.redis_url is None:
            raise ConfigError(
                "ai.cache.backend is redis, but ai.cache.redis_url is not set",
                hint="set ai.cache.redis_url, for example redis://127.0.0.1:6379/0",
            )
        from shiftboss.extensions.ai.providers.redis import RedisStore

        url = settings.redis_url.get_secret_value()
        remember_secret(urlsplit(url).password)
        return RedisStore(url)
    return None if settings.backend == "off" else shared
