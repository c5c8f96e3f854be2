"""A provider made of providers: asks them in order until one answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import structlog

from shiftboss.ai.errors import Exhausted, Held, ProviderError
from shiftboss.ai.protocol import Capability, Correction, Cost, Embeddings, Latency, Provider, Reply, Request

log = structlog.get_logger()
ResultT = TypeVar("ResultT")


class Fallback:
    name = "fallback"

    def __init__(self, providers: Sequence[Provider]) -> None:
        if not providers:
            raise ValueError("a fallback needs at least one provider")
        self.providers = tuple(providers)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset().union(*(provider.capabilities for provider in self.providers))

    @property
    def model(self) -> str:
        return self.providers[0].model

    @property
    def embedding_model(self) -> str:
        return self.providers[0].embedding_model

    @property
    def cost(self) -> Cost:
        return self.providers[0].cost

    @property
    def latency(self) -> Latency:
        return self.providers[0].latency

    async def complete(self, request: Request[Any], correction: Correction | None = None) -> Reply:
        able = [p for p in self.providers if Capability.COMPLETION in p.capabilities]
        return await self._first(able, lambda provider: provider.complete(request, correction))

    async def embed(self, texts: Sequence[str], model: str | None = None) -> Embeddings:
        """Only from providers of the same model: vectors of different models can not be compared."""
        wanted = model or self.embedding_model
        able = [p for p in self.providers if p.embedding_model == wanted] or self.providers[:1]
        return await self._first(able, lambda provider: provider.embed(texts, model))

    async def close(self) -> None:
        for provider in self.providers:
            await provider.close()

    async def _first(
        self, providers: Sequence[Provider], ask: Callable[[Provider], Awaitable[ResultT]]
    ) -> ResultT:
        errors: list[ProviderError] = []
        for provider in providers:
            try:
                return await ask(provider)
            except ProviderError as error:
                log.info("provider passed over", provider=provider.name, error=str(error))
                errors.append(error)
        raise _verdict(errors)


def _verdict(errors: Sequence[ProviderError]) -> ProviderError:
    """If one of them only has to be waited for, the whole is held until the first is free again."""
    held = [error for error in errors if isinstance(error, Held)]
    return min(held, key=lambda error: error.seconds) if held else Exhausted(errors)
