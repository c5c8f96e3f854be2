"""The door of the room: ask for an answer or for embeddings, whoever gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftboss.ai.protocol import Answer, Embeddings, Request, ValueT
from shiftboss.ai.providers.local import LocalProvider
from shiftboss.model.settings_ai import AISettings


class AI:
    """`async with await AI.open(settings, db) as ai: answer = await ai.complete(request)`"""

    def __init__(self, provider: LocalProvider) -> None:
        self._provider = provider

    @classmethod
    async def open(cls, settings: AISettings | None = None, db: Any = None) -> AI:
        return cls(LocalProvider())

    async def complete(self, request: Request[ValueT]) -> Answer[ValueT]:
        """A validated answer. Raises `Defer` when no provider may be asked now."""
        reply = await self._provider.complete(request)
        value = request.schema.model_validate(reply.payload)
        return Answer(value, reply.provider, reply.model, reply.usage)

    async def embed(
        self, texts: Sequence[str], model: str | None = None, provider: str | None = None
    ) -> Embeddings:
        """One vector per text, all from one model."""
        return await self._provider.embed(texts, model)

    async def close(self) -> None:
        await self._provider.close()

    async def __aenter__(self) -> AI:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
