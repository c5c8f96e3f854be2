"""A provider that asks other providers in order until one answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from shiftboss.extensions.ai.errors import (
    Declined,
    Exhausted,
    Held,
    Malformed,
    ProviderError,
    Truncated,
    Unadmitted,
)
from shiftboss.extensions.ai.protocol import (
    Capability,
    Chat,
    Embeddings,
    Origin,
    Provider,
    Reply,
)
from shiftboss.log import get_logger

log = get_logger(__name__)
ResultT = TypeVar("ResultT")


class Fallback:
    """Asks `providers` in order. Answers from providers outside `primary` are cached for a shorter time."""

    name = "fallback"

    def __init__(self, providers: Sequence[Provider], primary: Sequence[Provider] | None = None) -> None:
        if not providers:
            raise ValueError("a fallback needs at least one provider")
        self.providers = tuple(providers)
        first = providers[0]
        self.model, self.embedding_model = first.model, first.embedding_model
        self.cost, self.latency = first.cost, first.latency
        self.capabilities = frozenset[Capability]().union(*(each.capabilities for each in providers))
        self.primary = frozenset(each.name for each in (primary or providers[:1]))

    async def complete(self, chat: Chat) -> Reply:
        return await self._first(self._able(), lambda provider: provider.complete(chat))

    async def stream(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        """Yield the answer of the first provider that starts one; an error after that is raised."""
        failures = Failures()
        for provider in self._able():
            if failures.rule_out(provider):
                continue
            begun = False
            try:
                async with aclosing(provider.stream(chat)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except ProviderError as error:
                if begun:
                    raise
                failures.add(provider, error)
        raise failures.error()

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        origin: Origin | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        """Return vectors of one model; only providers that serve it are asked."""
        wanted = model or self.embedding_model
        able = [p for p in self.providers if p.embedding_model == wanted] or self.providers[:1]
        return await self._first(able, lambda provider: provider.embed(texts, model, origin, dimensions))

    async def close(self) -> None:
        for provider in self.providers:
            await provider.close()

    def _able(self) -> list[Provider]:
        return [provider for provider in self.providers if Capability.COMPLETION in provider.capabilities]

    async def _first(
        self, providers: Sequence[Provider], ask: Callable[[Provider], Awaitable[ResultT]]
    ) -> ResultT:
        failures = Failures()
        for provider in providers:
            if failures.rule_out(provider):
                continue
            try:
                return await ask(provider)
            except ProviderError as error:
                failures.add(provider, error)
        raise failures.error()


class Failures:
    """The errors of providers that did not answer a request."""

    def __init__(self) -> None:
        self._errors: list[ProviderError] = []
        self._declined: set[str] = set()

    def rule_out(self, provider: Provider) -> bool:
        """Whether the provider's model has already declined this request."""
        return provider.model in self._declined

    def add(self, provider: Provider, error: ProviderError) -> None:
        if isinstance(error, Unadmitted):  # the other providers depend on the same database
            raise error
        log.info("provider failed", provider=provider.name, error=str(error))
        self._errors.append(error)
        if isinstance(error, Declined | Truncated):
            self._declined.add(provider.model)

    def error(self) -> ProviderError:
        """Return the `Held` with the shortest wait, or `Exhausted` if waiting does not help.

        A deferral spends no attempt. After a billed answer the task must spend one, or it would pay for the
        same answers again and again while another provider is held.
        """
        held = [error for error in self._errors if isinstance(error, Held)]
        if not held or any(isinstance(error, Declined | Malformed | Truncated) for error in self._errors):
            return Exhausted(self._errors)
        soonest = min(held, key=lambda error: error.seconds)
        soonest.hint = "; ".join(str(error) for error in self._errors)
        return soonest
