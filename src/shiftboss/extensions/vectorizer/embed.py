"""Embeds batches with one provider call each. A rejected batch is halved until the bad text is found.

Provider failures never spend an attempt of a row. A rejection counts against a text only if the provider
embeds a harmless text at the same time; an unreadable answer never counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from shiftboss.extensions.ai.errors import Exhausted, Malformed, ProviderError
from shiftboss.extensions.ai.protocol import Embeddings
from shiftboss.extensions.vectorizer.batch import EmbeddedRows, Failed, Prepared
from shiftboss.extensions.vectorizer.model import SourceRow, VectorizerSpec
from shiftboss.model.errors import ConfigError, Defer, ShiftbossError

DEFER_SECONDS = 30.0  # for which a vectorizer is deferred when its provider fails
HARMLESS = "A short sentence about nothing in particular."


class Embedder(Protocol):
    """The part of `AI` that embeds."""

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
class EmbedResult:
    """The result of a batch. With `trouble`, the rows in `held` were not embedded and spend no attempt."""

    embedded: list[EmbeddedRows] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    held: list[SourceRow] = field(default_factory=list)
    trouble: Defer | None = None
    stopped: bool = False

    def hold(self, rows: Sequence[Prepared], trouble: Defer, *, stop: bool = True) -> None:
        self.held += [each.row for each in rows]
        self.trouble = self.trouble or trouble
        self.stopped = self.stopped or stop


class Embed:
    """Embeds the texts of one vectorizer."""

    def __init__(self, vectorizer: VectorizerSpec, embedder: Embedder) -> None:
        self._vectorizer = vectorizer
        self._embedder = embedder
        self._dimensions = vectorizer.dimensions if vectorizer.send_dimensions else None

    async def batch(self, rows: Sequence[Prepared]) -> EmbedResult:
        """Return each row as embedded, failed, or held because of a provider failure."""
        result = EmbedResult()
        if not any(each.chunks for each in rows):
            none = np.zeros((0, self._vectorizer.dimensions), dtype=np.float32)
            result.embedded.append(EmbeddedRows(rows, none))
            return result
        try:
            await self._whole(rows, result)
        except Defer as trouble:
            result.hold(rows, trouble)
        except ProviderError as error:
            await self._after_refusal(rows, result, error)
        return result

    async def queries(self, texts: Sequence[str]) -> list[Sequence[float] | ShiftbossError]:
        """Embed queries in one call, and return the vector or the error of each."""
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
        """Embed a query with the vectorizer's model."""
        try:
            return await self._ask([text])
        except ProviderError:
            await self._check_provider()
            return await self._ask([text])

    async def _after_refusal(
        self, rows: Sequence[Prepared], result: EmbedResult, error: ProviderError
    ) -> None:
        sent = self._dimensions
        try:
            await self._check_provider()
        except Defer as trouble:
            result.hold(rows, trouble)
            return
        if self._dimensions == sent:
            await self._split(rows, result, error)
        else:
            await self._part(rows, result)

    async def _part(self, rows: Sequence[Prepared], result: EmbedResult) -> None:
        if result.stopped and result.trouble is not None:
            result.hold(rows, result.trouble)
            return
        try:
            await self._whole(rows, result)
        except Defer as trouble:
            result.hold(rows, trouble)
        except ProviderError as error:
            await self._split(rows, result, error)

    async def _split(self, rows: Sequence[Prepared], result: EmbedResult, error: ProviderError) -> None:
        """Find the rejected text by halving: the provider works. A text rejected on its own fails its row."""
        if len(rows) > 1:
            middle = len(rows) // 2
            await self._part(rows[:middle], result)
            await self._part(rows[middle:], result)
        elif error.of_request:
            result.failed.append(Failed(rows[0].row, "embed", str(error)))
        else:
            result.hold(rows, Defer(str(error), DEFER_SECONDS), stop=False)

    async def _whole(self, rows: Sequence[Prepared], result: EmbedResult) -> None:
        made = await self._ask([chunk for each in rows for chunk in each.chunks])
        embedded = EmbeddedRows(rows, made.vectors)
        if not np.isfinite(made.vectors).all():
            await self._check_provider()
        self._keep_finite(embedded, result)

    async def _check_provider(self) -> None:
        """Raise `Defer` if the provider does not embed a harmless text either.

        Some servers reject every request with `dimensions`: stop sending the parameter to them.
        """
        try:
            made = await self._ask([HARMLESS])
        except ProviderError as error:
            if self._dimensions is None:
                raise Defer(str(error), DEFER_SECONDS, hint=error.hint) from error
            self._dimensions = None
            await self._check_provider()
            return
        if not np.isfinite(made.vectors).all():
            raise Defer(f"{made.provider}: the vectors contain NaN or infinity", DEFER_SECONDS)

    async def _ask(self, texts: Sequence[str]) -> Embeddings:
        """Embed the texts. Raises `Defer` for provider failures, `ProviderError` if a text may be bad."""
        try:
            made = await self._embedder.embed(
                texts, self._vectorizer.model, self._vectorizer.provider, **self._options()
            )
        except (ProviderError, ConfigError) as error:
            if isinstance(error, ProviderError) and (error.of_request or _unreadable(error)):
                raise
            raise Defer(str(error), DEFER_SECONDS, hint=error.hint) from error
        if made.dimensions != self._vectorizer.dimensions:
            raise Defer(
                f"{made.provider}: {made.model} returns {made.dimensions} dimensions, "
                f"the vectorizer has {self._vectorizer.dimensions}",
                DEFER_SECONDS,
                hint=f"SELECT ai.update_vectorizer({self._vectorizer.id}, dimensions => {made.dimensions})",
            )
        return made

    def _options(self) -> dict[str, Any]:
        options = {
            "dimensions": self._dimensions,
            "base_url": self._vectorizer.base_url,
            "api_key_name": self._vectorizer.api_key_name,
        }
        return {name: value for name, value in options.items() if value is not None}

    def _keep_finite(self, made: EmbeddedRows, result: EmbedResult) -> None:
        """Fail rows with NaN or infinity in a vector, for which PostgreSQL would reject the whole batch."""
        if np.isfinite(made.vectors).all():
            result.embedded.append(made)
        elif len(made.rows) == 1:
            reason = "the vector contains NaN or infinity"
            result.failed.append(Failed(made.rows[0].row, "embed", reason))
        else:
            for half in made.halves():
                self._keep_finite(half, result)


def _unreadable(error: ProviderError) -> bool:
    """Whether the response was not a valid answer, such as a login page, or had too few vectors."""
    return isinstance(error, Malformed) or (
        isinstance(error, Exhausted) and any(isinstance(each, Malformed) for each in error.errors)
    )
