"""Embed: one provider call per batch; a batch that is refused is halved until the culprit stands alone.

Trouble with the provider never costs a row a try. A refusal counts against a text only if the provider
answers a harmless one at the same time; an answer that cannot be read never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from shiftboss.extensions.ai.errors import Exhausted, Malformed, ProviderError
from shiftboss.extensions.ai.protocol import Embeddings
from shiftboss.extensions.vectorizer.batch import Embedded, Failed, Prepared
from shiftboss.extensions.vectorizer.model import SourceRow, Vectorizer
from shiftboss.model.errors import ConfigError, Defer, ShiftbossError

PATIENCE = 30.0  # seconds a vectorizer rests whose provider is in trouble
HARMLESS = "A short sentence about nothing in particular."


class Embedder(Protocol):
    """`AI` is one."""

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        provider: str | None = None,
        *,
        dimensions: int | None = None,
        base_url: str | None = None,
        api_key_name: str | None = None,
    ) -> Embeddings: ...


@dataclass(slots=True)
class Answered:
    """What became of a batch. With `trouble`, the rows in `held` were not tried."""

    embedded: list[Embedded] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    held: list[SourceRow] = field(default_factory=list)
    trouble: Defer | None = None
    stopped: bool = False

    def hold(self, rows: Sequence[Prepared], trouble: Defer, *, stop: bool = True) -> None:
        self.held += [each.row for each in rows]
        self.trouble = self.trouble or trouble
        self.stopped = self.stopped or stop


class Embed:
    """One vectorizer's way to its provider."""

    def __init__(self, vectorizer: Vectorizer, embedder: Embedder) -> None:
        self._vectorizer = vectorizer
        self._embedder = embedder
        self._dimensions = vectorizer.dimensions if vectorizer.send_dimensions else None

    async def batch(self, rows: Sequence[Prepared]) -> Answered:
        """Every row comes back: embedded, failed, or held with the provider's trouble."""
        answered = Answered()
        if not any(each.chunks for each in rows):
            none = np.zeros((0, self._vectorizer.dimensions), dtype=np.float32)
            answered.embedded.append(Embedded(rows, none))
            return answered
        try:
            await self._whole(rows, answered)
        except Defer as trouble:
            answered.hold(rows, trouble)
        except ProviderError as error:
            await self._after_refusal(rows, answered, error)
        return answered

    async def queries(self, texts: Sequence[str]) -> list[Sequence[float] | ShiftbossError]:
        """Vectors of several questions by one call, or what is wrong with each: one may be at fault."""
        if len(texts) > 1:
            try:
                return list((await self._ask(texts)).vectors)
            except ProviderError:
                return [found for text in texts for found in await self.queries([text])]
        try:
            return list((await self.query(texts[0])).vectors)
        except ShiftbossError as trouble:
            return [trouble]

    async def query(self, text: str) -> Embeddings:
        """A question's vector, from the model that made the vectorizer's own."""
        try:
            return await self._ask([text])
        except ProviderError:
            await self._check_provider()
            return await self._ask([text])

    async def _after_refusal(
        self, rows: Sequence[Prepared], answered: Answered, error: ProviderError
    ) -> None:
        sent = self._dimensions
        try:
            await self._check_provider()
        except Defer as trouble:
            answered.hold(rows, trouble)
            return
        if self._dimensions == sent:
            await self._split(rows, answered, error)
        else:
            await self._part(rows, answered)

    async def _part(self, rows: Sequence[Prepared], answered: Answered) -> None:
        if answered.stopped and answered.trouble is not None:
            answered.hold(rows, answered.trouble)
            return
        try:
            await self._whole(rows, answered)
        except Defer as trouble:
            answered.hold(rows, trouble)
        except ProviderError as error:
            await self._split(rows, answered, error)

    async def _split(self, rows: Sequence[Prepared], answered: Answered, error: ProviderError) -> None:
        """The provider is well: it is one of these texts. Alone, one that is refused costs its row a try."""
        if len(rows) > 1:
            middle = len(rows) // 2
            await self._part(rows[:middle], answered)
            await self._part(rows[middle:], answered)
        elif error.of_request:
            answered.failed.append(Failed(rows[0].row, "embed", str(error)))
        else:
            answered.hold(rows, Defer(str(error), PATIENCE), stop=False)

    async def _whole(self, rows: Sequence[Prepared], answered: Answered) -> None:
        made = await self._ask([chunk for each in rows for chunk in each.chunks])
        embedded = Embedded(rows, made.vectors)
        if not np.isfinite(made.vectors).all():
            await self._check_provider()
        self._sound(embedded, answered)

    async def _check_provider(self) -> None:
        """Raise `Defer` if the provider does not embed a harmless text either.

        Some servers refuse every request that asks for dimensions: those are asked without from now on.
        """
        try:
            made = await self._ask([HARMLESS])
        except ProviderError as error:
            if self._dimensions is None:
                raise Defer(str(error), PATIENCE, hint=error.hint) from error
            self._dimensions = None
            await self._check_provider()
            return
        if not np.isfinite(made.vectors).all():
            raise Defer(f"{made.provider}: the vectors have elements that are not numbers", PATIENCE)

    async def _ask(self, texts: Sequence[str]) -> Embeddings:
        """Raises `Defer` for the provider's trouble, `ProviderError` where a text may be to blame."""
        try:
            made = await self._embedder.embed(
                texts, self._vectorizer.model, self._vectorizer.provider, **self._options()
            )
        except (ProviderError, ConfigError) as error:
            if isinstance(error, ProviderError) and (error.of_request or _unreadable(error)):
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

    def _options(self) -> dict[str, Any]:
        options = {
            "dimensions": self._dimensions,
            "base_url": self._vectorizer.base_url,
            "api_key_name": self._vectorizer.api_key_name,
        }
        return {name: value for name, value in options.items() if value is not None}

    def _sound(self, made: Embedded, answered: Answered) -> None:
        """Sort out rows with a vector that is no vector: PostgreSQL would refuse the whole batch for it."""
        if np.isfinite(made.vectors).all():
            answered.embedded.append(made)
        elif len(made.rows) == 1:
            reason = "the vector has elements that are not numbers"
            answered.failed.append(Failed(made.rows[0].row, "embed", reason))
        else:
            for half in made.halves():
                self._sound(half, answered)


def _unreadable(error: ProviderError) -> bool:
    """The answer was no answer: a login page, half a document, too few vectors."""
    return isinstance(error, Malformed) or (
        isinstance(error, Exhausted) and any(isinstance(each, Malformed) for each in error.errors)
    )
