"""Stores the cache in Redis or Valkey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from redis.asyncio import Redis

# Atomic: between a lookup and a claim, another process could put the value and release its claim.
TAKE = """
local found = redis.call('get', KEYS[1])
if found then return found end
if redis.call('set', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return 'mine' end
return 'wait'
"""
# Only the owner may release its claim.
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RedisStore:
    """The cache functions of `AIEngine`, without a database."""

    def __init__(self, url: str) -> None:
        self._redis: Any = Redis.from_url(url)

    async def ai_cache_get(self, key: str) -> dict[str, Any] | None:
        raw = await self._redis.get(key)
        return None if raw is None else orjson.loads(raw)

    async def ai_cache_take(
        self, key: str, task_type: str, owner: UUID, lease: float
    ) -> tuple[str, dict[str, Any] | None]:
        found = await self._redis.eval(TAKE, 2, key, _claim(key), owner.hex, int(lease * 1000))
        if found in (b"mine", b"wait"):
            return found.decode(), None
        return "hit", orjson.loads(found)

    async def ai_cache_put(self, key: str, task_type: str, value: dict[str, Any], ttl: float) -> None:
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.set(key, orjson.dumps(value), px=int(ttl * 1000))
            pipe.delete(_claim(key))
            await pipe.execute()

    async def ai_cache_release(self, key: str, owner: UUID) -> None:
        await self._redis.eval(RELEASE, 1, _claim(key), owner.hex)

    async def ai_cache_get_many(self, keys: Sequence[str]) -> dict[str, Any]:
        found = await self._redis.mget(list(keys))
        return {key: orjson.loads(raw) for key, raw in zip(keys, found, strict=True) if raw is not None}

    async def ai_cache_put_many(self, values: Mapping[str, Any], task_type: str, ttl: float) -> None:
        async with self._redis.pipeline(transaction=False) as pipe:
            for key, value in values.items():
                pipe.set(key, orjson.dumps(value), px=int(ttl * 1000))
            await pipe.execute()

    async def close(self) -> None:
        await self._redis.aclose()


def _claim(key: str) -> str:
    return f"{key}:claim"
