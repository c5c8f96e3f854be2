"""Answers requests from the cache or a provider, and sends identical concurrent requests only once."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from shiftboss.db.layout import default_data_dir
from shiftboss.extensions.ai.admission import Call, Outcome, record_of
from shiftboss.extensions.ai.ask import Ask, Inquiry, inquiry
from shiftboss.extensions.ai.batches import GATHER, Batcher
from shiftboss.extensions.ai.cache import Cache, open_store
from shiftboss.extensions.ai.client import Client
from shiftboss.extensions.ai.configure import Builder
from shiftboss.extensions.ai.errors import Held
from shiftboss.extensions.ai.prompts import Prompts
from shiftboss.extensions.ai.protocol import Answer, Embeddings, Origin, Reply, ToolCall, Usage, Wanted
from shiftboss.extensions.ai.providers.fallback import Fallback
from shiftboss.extensions.ai.records import Recorder
from shiftboss.extensions.ai.router import LAST_RESORT, Router
from shiftboss.extensions.ai.schemas import context_of
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.ai.settler import Settler
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.extensions.ai.usage import CacheUse, UsageBuffer
from shiftboss.extensions.ai.vectors import VectorCache
from shiftboss.model.settings import Settings
from shiftboss.model.task import storable

if TYPE_CHECKING:
    from shiftboss.db import Database

CLAIM_LEASE = 90.0
FIRST_LOOK = 0.05
LONGEST_LOOK = 1.0
MAX_BATCHERS = 500  # one per model and origin


class AI(Client):
    """Asks AI models: `async with await AI.open(settings, db) as ai: answer = await ai.complete("...")`.

    With a database, the circuit breakers, limits and budgets apply to the whole fleet, and no provider is
    called while the database is unavailable. Without one, they apply to this process only, and nothing is
    cached unless Redis is configured.
    """

    def __init__(
        self,
        settings: AISettings,
        router: Router,
        builder: Builder,
        cache: Cache,
        usage_buffer: UsageBuffer,
        settler: Settler | None = None,
    ) -> None:
        super().__init__(self._self)
        self._builder = builder
        self._settings = settings
        self._router = router
        self._cache = cache
        self._usage_buffer = usage_buffer
        self._settler = settler
        self._recorder = Recorder(settings.record)
        self._prompts = Prompts(settings.prompts)
        self._batchers: dict[tuple[Wanted, Origin], Batcher] = {}
        self._custom: dict[Wanted, Fallback] = {}
        self._routing = asyncio.Lock()
        self._under_way: dict[str, asyncio.Task[tuple[Reply, bool]]] = {}

    @classmethod
    async def open(
        cls,
        settings: AISettings | None = None,
        db: Database | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        shared: AIEngine | None = None,
    ) -> AI:
        """Open an engine.

        `directory` stores the cost of calls while the database is unavailable; the default is a subdirectory
        of the data directory. `shared` replaces the database for workers that reach it through a coordinator;
        such an engine has no PostgreSQL cache.
        """
        settings = settings or AISettings()
        environment = os.environ if environment is None else environment
        cached = db.family(AIEngine) if db is not None else None
        shared = shared or cached
        usage_buffer = UsageBuffer(shared, settings.record.keep)
        store = open_store(settings.cache, cached)
        settler = Settler(shared, directory or _directory()) if shared is not None else None
        try:
            builder = Builder(settings, environment, usage_buffer, shared, settler)
            cache = Cache(store, settings.cache, usage_buffer)
            return cls(settings, await builder.router(), builder, cache, usage_buffer, settler)
        except BaseException:
            if settler is not None:
                await settler.close()
            raise

    async def _self(self) -> AI:
        return self

    @property
    def router(self) -> Router:
        return self._router

    @property
    def prompts(self) -> Prompts:
        return self._prompts

    @property
    def embedding_provider(self) -> str:
        """The provider of embeddings for which no other is requested."""
        return self._settings.embedding_provider

    @property
    def cache_use(self) -> CacheUse:
        """The cache hits and misses of this process."""
        return self._usage_buffer.total

    def inquiry(self, prompt: str | None, schema: type[BaseModel] | None, ask: Ask) -> Inquiry:
        return inquiry(prompt, schema, ask, self._prompts)

    async def answer(self, asked: Inquiry) -> Answer[Any]:
        """Return the answer to a prepared request."""
        route, name = self._router.route(asked.need, asked.model)
        if not asked.cached:
            return _answer(asked, await self._ask(asked, route), cached=False)
        reply, cached = await self._once(asked.key(name), asked, route)
        if cached:
            self._record_hit(asked, reply)
        return _answer(asked, reply, cached=cached)

    async def pieces(self, asked: Inquiry) -> AsyncGenerator[str | Answer[Any], None]:
        """Yield the text of the answer to a prepared request in pieces, then the `Answer`."""
        route, name = self._router.route(asked.need, asked.model)
        key, kind = asked.key(name), asked.chat.origin.task_type
        if asked.cached and (taken := await self._cache.take(key, kind, None)).value is not None:
            reply = _unpack(taken.value)
            self._record_hit(asked, reply)
            yield reply.text
            yield _answer(asked, reply, cached=True)
            return
        try:
            async with aclosing(route.stream(asked.chat)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, str):
                        yield piece
                        continue
                    await self._keep(key, asked, piece, route)
                    yield _answer(asked, piece, cached=False)
        except Held as error:
            raise error.deferral() from None

    async def _once(self, key: str, asked: Inquiry, route: Fallback) -> tuple[Reply, bool]:
        """Share one call among identical concurrent requests of the same tenant and key in this process."""
        origin = asked.chat.origin
        place = f"{key}\0{origin.tenant}\0{origin.key}"
        task = self._under_way.get(place)
        shared = task is not None
        if task is None:
            task = asyncio.create_task(self._look_up_or_ask(key, asked, route))
            self._under_way[place] = task
            task.add_done_callback(lambda done: self._finished(place, done))
        # Shielded: a caller that reaches its deadline must not cancel the call for the others.
        reply, cached = await asyncio.shield(task)
        return reply, cached or shared

    def _finished(self, place: str, task: asyncio.Task[tuple[Reply, bool]]) -> None:
        self._under_way.pop(place, None)
        if not task.cancelled():
            task.exception()  # retrieve it: if all callers were cancelled, asyncio would log it as unhandled

    async def _look_up_or_ask(self, key: str, asked: Inquiry, route: Fallback) -> tuple[Reply, bool]:
        # Computing a local answer twice is cheaper than coordinating with the fleet.
        lease = None if route.providers[0].name == LAST_RESORT else CLAIM_LEASE
        kind, pause = asked.chat.origin.task_type, FIRST_LOOK
        while (taken := await self._cache.take(key, kind, lease)).state == "wait":
            await asyncio.sleep(pause * (0.5 + random.random()))
            pause = min(pause * 2, LONGEST_LOOK)
        if taken.value is not None:
            return _unpack(taken.value), True
        try:
            reply = await self._ask(asked, route)
        except BaseException:
            if lease is not None:
                await asyncio.shield(self._cache.release(key, kind))
            raise
        await self._keep(key, asked, reply, route)
        return reply, False

    async def _ask(self, asked: Inquiry, route: Fallback) -> Reply:
        try:
            return await route.complete(asked.chat)
        except Held as error:
            raise error.deferral() from None

    async def _keep(self, key: str, asked: Inquiry, reply: Reply, route: Fallback) -> None:
        """Cache the reply, unless it was truncated."""
        kind = asked.chat.origin.task_type
        if asked.cached and reply.finish_reason != "length":
            stand_in = reply.provider not in route.primary
            await self._cache.put(key, kind, _pack(reply), stand_in=stand_in)
        elif asked.cached:
            await self._cache.release(key, kind)

    def _record_hit(self, asked: Inquiry, reply: Reply) -> None:
        prompt = self._recorder.prompt(asked.chat)
        if prompt is not None:
            call = Call(reply.model, "completion", asked.chat.origin, Usage(), 0.0)
            hit = Outcome("cached", 0.0, model=reply.model, finish_reason=reply.finish_reason, prompt=prompt,
                          answer=self._recorder.answer(reply))  # fmt: skip
            self._usage_buffer.record(record_of(reply.provider, call, hit))

    async def vectors(self, texts: Sequence[str], wanted: Wanted, origin: Origin) -> Embeddings:
        if not texts:
            raise ValueError("embed needs at least one text")
        batcher = await self._batcher(wanted, origin)
        try:
            return await batcher.embed([storable(text) for text in texts])
        except Held as error:
            raise error.deferral() from None

    async def _batcher(self, wanted: Wanted, origin: Origin) -> Batcher:
        if (wanted, origin) not in self._batchers:
            if len(self._batchers) >= MAX_BATCHERS:
                self._batchers.pop(next(iter(self._batchers)))
            route, name, model = await self._route(wanted)

            async def embed(texts: Sequence[str]) -> Embeddings:
                return await route.embed(texts, model, origin, wanted.dimensions)

            local = route.providers[0].name == LAST_RESORT
            if not local and self._settings.cache.embeddings:
                embed = VectorCache(self._cache, embed, f"{name}:{wanted.dimensions or ''}").embed
            gather = 0.0 if local else GATHER
            self._batchers[wanted, origin] = Batcher(embed, self._settings.embedding_batch, gather)
        return self._batchers[wanted, origin]

    async def _route(self, wanted: Wanted) -> tuple[Fallback, str, str | None]:
        """Return the providers, a cache name for their vectors, and the model to request."""
        default = self._settings.embedding_provider
        if not wanted.custom:
            return self._router.embedding_route(wanted.provider, wanted.model, default)
        provider = wanted.provider or default
        place = wanted._replace(provider=provider, model=None, dimensions=None)
        async with self._routing:
            if place not in self._custom:
                self._custom[place] = Fallback([await self._builder.custom(place)])
        route = self._custom[place]
        return route, f"{route.providers[0].name}:{wanted.model or route.embedding_model}", wanted.model

    async def close(self) -> None:
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        if self._settler is not None:
            await self._settler.close()
        await self._usage_buffer.close()
        await self._cache.close()
        for provider in (*self._router.all_providers(), *self._custom.values()):
            await provider.close()

    async def __aenter__(self) -> AI:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _directory() -> Path:
    return (Settings.load().data_dir or default_data_dir()) / "ai"


def _answer(asked: Inquiry, reply: Reply, *, cached: bool) -> Answer[Any]:
    chat = asked.chat
    value: Any = None
    if chat.schema is None:
        value = reply.text
    elif not reply.tool_calls:
        value = chat.schema.model_validate(reply.payload, context=context_of(chat))
    return Answer(
        value, reply.text, reply.provider, reply.model, reply.usage, cached, reply.call_id,
        reply.finish_reason, reply.tool_calls, chat.origin.template, chat.origin.template_version,
    )  # fmt: skip


def _pack(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "value": reply.payload,
        "provider": reply.provider,
        "model": reply.model,
        "usage": [usage.prompt_tokens, usage.completion_tokens, usage.cost],
        "finish_reason": reply.finish_reason,
        "tool_calls": [[call.id, call.name, call.arguments] for call in reply.tool_calls],
    }


def _unpack(packed: Mapping[str, Any]) -> Reply:
    return Reply(
        packed["value"], packed["model"], Usage(*packed["usage"]), packed["provider"],
        packed.get("finish_reason", "stop"), tuple(ToolCall(*call) for call in packed.get("tool_calls", ())),
    )  # fmt: skip
