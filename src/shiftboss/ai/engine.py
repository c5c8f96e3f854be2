"""The door of the room: ask for an answer or for embeddings, whoever gives them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shiftboss.ai.batches import GATHER, Batcher
from shiftboss.ai.cache import Cache, open_store
from shiftboss.ai.configure import build_providers
from shiftboss.ai.errors import Held
from shiftboss.ai.prompts import fingerprint
from shiftboss.ai.protocol import Answer, Embeddings, Reply, Request, Usage, ValueT
from shiftboss.ai.providers.fallback import Fallback
from shiftboss.ai.router import LAST_RESORT, Router
from shiftboss.ai.tally import CacheUse, Tally
from shiftboss.model.errors import Defer
from shiftboss.model.settings_ai import AISettings
from shiftboss.model.task import storable

if TYPE_CHECKING:
    from shiftboss.db import Database

CLAIM_LEASE = 90.0
FIRST_LOOK = 0.05
LONGEST_LOOK = 1.0


class AI:
    """`async with await AI.open(settings, db) as ai: answer = await ai.complete(request)`

    Without a database breaker, limits and budget hold for this process only, and nothing is cached
    (unless Redis is configured).
    """

    def __init__(self, settings: AISettings, router: Router, cache: Cache, tally: Tally) -> None:
        self._settings = settings
        self._router = router
        self._cache = cache
        self._tally = tally
        self._batchers: dict[tuple[str, str | None], Batcher] = {}
        self._under_way: dict[str, asyncio.Task[tuple[Reply, bool]]] = {}

    @classmethod
    async def open(
        cls,
        settings: AISettings | None = None,
        db: Database | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> AI:
        settings = settings or AISettings()
        shared = db.ai if db is not None else None
        tally = Tally(shared)
        router = Router(await build_providers(settings, shared, tally, environment))
        return cls(settings, router, Cache(open_store(settings.cache, shared), settings.cache, tally), tally)

    @property
    def router(self) -> Router:
        return self._router

    @property
    def cache_use(self) -> CacheUse:
        """Hits and misses of this process."""
        return self._tally.total

    async def complete(self, request: Request[ValueT]) -> Answer[ValueT]:
        """A validated answer. Raises `Defer` when every provider that could answer must be waited for."""
        request = replace(request, content=storable(request.content))
        route = self._router.route(request.need)
        first = route.providers[0]
        asked = f"{first.name}:{first.model}:{fingerprint(request.template_name, request.schema)}"
        key = f"processed:{request.task_type}:{request.content_hash(asked)}"
        reply, cached = await self._once(key, request, route)
        value = request.schema.model_validate(reply.payload)
        return Answer(value, reply.provider, reply.model, reply.usage, cached)

    async def _once(self, key: str, request: Request[Any], route: Fallback) -> tuple[Reply, bool]:
        """Identical requests that are under way in this process share one call."""
        task = self._under_way.get(key)
        shared = task is not None
        if task is None:
            task = asyncio.create_task(self._look_up_or_ask(key, request, route))
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        # Shielded: one caller's deadline must not take the answer from the others.
        reply, cached = await asyncio.shield(task)
        return reply, cached or shared

    def _finished(self, key: str, task: asyncio.Task[tuple[Reply, bool]]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()  # seen, even if every caller has been cancelled meanwhile

    async def _look_up_or_ask(self, key: str, request: Request[Any], route: Fallback) -> tuple[Reply, bool]:
        # A local answer is cheaper than the bookkeeping that keeps the fleet from making it twice.
        lease = None if route.providers[0].name == LAST_RESORT else CLAIM_LEASE
        pause = FIRST_LOOK
        while (taken := await self._cache.take(key, request.task_type, lease)).state == "wait":
            await asyncio.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 2, LONGEST_LOOK)
        if taken.value is not None:
            return _unpack(taken.value), True
        return await self._ask(key, request, route, claimed=lease is not None), False

    async def _ask(self, key: str, request: Request[Any], route: Fallback, *, claimed: bool) -> Reply:
        try:
            reply = await route.complete(request)
        except BaseException as error:
            if claimed:
                await asyncio.shield(self._cache.release(key, request.task_type))
            if isinstance(error, Held):
                raise Defer(error.reason, error.seconds, hint=str(error)) from error
            raise
        stand_in = reply.provider != route.providers[0].name
        await self._cache.put(key, request.task_type, _pack(reply), stand_in=stand_in)
        return reply

    async def embed(
        self, texts: Sequence[str], model: str | None = None, provider: str | None = None
    ) -> Embeddings:
        """One vector per text, in order, all from one model; what is asked at the same time goes together."""
        if not texts:
            raise ValueError("embed needs at least one text")
        batcher = self._batcher(provider or self._settings.embedding_provider, model)
        try:
            return await batcher.embed([storable(text) for text in texts])
        except Held as error:
            raise Defer(error.reason, error.seconds, hint=str(error)) from error

    def _batcher(self, provider: str, model: str | None) -> Batcher:
        if (provider, model) not in self._batchers:
            route = self._router.embedding_route(provider)
            gather = 0.0 if provider == LAST_RESORT else GATHER
            self._batchers[provider, model] = Batcher(
                lambda texts: route.embed(texts, model), self._settings.embedding_batch, gather
            )
        return self._batchers[provider, model]

    async def close(self) -> None:
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        await self._tally.close()
        await self._cache.close()
        for provider in self._router.providers.values():
            await provider.close()

    async def __aenter__(self) -> AI:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _pack(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "value": reply.payload,
        "provider": reply.provider,
        "model": reply.model,
        "usage": [usage.prompt_tokens, usage.completion_tokens, usage.cost],
    }


def _unpack(packed: Mapping[str, Any]) -> Reply:
    return Reply(packed["value"], packed["model"], Usage(*packed["usage"]), packed["provider"])
