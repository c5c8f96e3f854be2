"""Cached results in Redis (or Valkey), through its SDK."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import orjson
from redis.asyncio import Redis

from shiftboss.ai.cache import MINE, Taken

# Only the claimant may give its claim up.
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RedisStore:
    def __init__(self, url: str) -> None:
        self._redis: Any = Redis.from_url(url)
        self._owner = uuid4().hex

    async def get(self, key: str) -> dict[str, Any] | None:
        raw = await self._redis.get(key)
        return None if raw is None else orjson.loads(raw)

    async def take(self, key: str, task_type: str, lease: float) -> Taken:
        if (value := await self.get(key)) is not None:
            return Taken("hit", value)
        claimed = await self._redis.set(_claim(key), self._owner, nx=True, px=int(lease * 1000))
        return MINE if claimed else Taken("wait")

    async def put(self, key: str, task_type: str, value: dict[str, Any], ttl: float) -> None:
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.set(key, orjson.dumps(value), px=int(ttl * 1000))
            pipe.delete(_claim(key))
            await pipe.execute()

    async def release(self, key: str) -> None:
        await self._redis.eval(RELEASE, 1, _claim(key), self._owner)

    async def close(self) -> None:
        await self._redis.aclose()


def _claim(key: str) -> str:
    return f"{key}:claim"
