"""Embed: one provider call per batch; a batch that is refused is halved until the culprit stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from shiftboss.ai.errors import ProviderError
from shiftboss.ai.protocol import Embeddings
from shiftboss.model.errors import ConfigError, Defer
from shiftboss.model.vectorizer import Vectorizer
from shiftboss.vectorizer.batch import Embedded, Failed, Prepared

PATIENCE = 30.0  # seconds a vectorizer rests whose provider is in trouble


class Embedder(Protocol):
    """`AI` is one."""

    async def embed(
        self, texts: Sequence[str], model: str | None = None, provider: str | None = None
    ) -> Embeddings: ...


class Embed:
    """Raises `Defer` when the provider, not the text, is the trouble: then no row has lost a try."""

    def __init__(self, vectorizer: Vectorizer, embedder: Embedder) -> None:
        self._vectorizer = vectorizer
        self._embedder = embedder

    async def batch(self, rows: Sequence[Prepared]) -> tuple[list[Embedded], list[Failed]]:
        """Every row comes back, embedded or failed."""
        if not any(each.chunks for each in rows):
            return [Embedded(rows, np.zeros((0, self._vectorizer.dimensions), dtype=np.float32))], []
        try:
            return self._sound(Embedded(rows, (await self._ask(rows)).vectors))
        except ProviderError as error:
            if len(rows) == 1:
                return [], [Failed(rows[0].row, "embed", str(error))]
        middle = len(rows) // 2
        one, two = await self.batch(rows[:middle]), await self.batch(rows[middle:])
        return one[0] + two[0], one[1] + two[1]

    async def query(self, text: str) -> Embeddings:
        """A question's vector, from the model that made the vectorizer's own."""
        return await self._embedder.embed([text], self._vectorizer.model, self._vectorizer.provider)

    async def _ask(self, rows: Sequence[Prepared]) -> Embeddings:
        texts = [chunk for each in rows for chunk in each.chunks]
        try:
            made = await self._embedder.embed(texts, self._vectorizer.model, self._vectorizer.provider)
        except (ProviderError, ConfigError) as error:
            if isinstance(error, ProviderError) and error.of_request:
                raise
            raise Defer(str(error), PATIENCE, hint=error.hint) from error
        if made.dimensions != self._vectorizer.dimensions:
            raise Defer(
                f"{made.provider}: {made.model} gives {made.dimensions} dimensions, "
                f"the vectorizer has {self._vectorizer.dimensions}",
                PATIENCE,
                hint=f"ai.update_vectorizer({self._vectorizer.id}, dimensions => {made.dimensions})",
            )
        return made

    def _sound(self, made: Embedded) -> tuple[list[Embedded], list[Failed]]:
        """Sort out rows with a vector that is no vector: PostgreSQL would refuse the whole batch for it."""
        finite = np.isfinite(made.vectors).all(axis=1)
        if finite.all():
            return [made], []
        if len(made.rows) == 1:
            return [], [Failed(made.rows[0].row, "embed", "the vector has elements that are not numbers")]
        one, two = (self._sound(half) for half in made.halves())
        return one[0] + two[0], one[1] + two[1]
