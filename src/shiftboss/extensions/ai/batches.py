"""Batches embeddings: splits long lists, and combines small concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from shiftboss.extensions.ai.errors import ProviderError
from shiftboss.extensions.ai.protocol import Embeddings, Usage, estimate_tokens

MAX_TOKENS = 100_000  # a third of OpenAI's limit for one request
GATHER = 0.003  # seconds; negligible next to a network call, but enough for tasks that start together

Embed = Callable[[Sequence[str]], Awaitable[Embeddings]]


def cut(texts: Sequence[str], size: int) -> Iterator[list[str]]:
    """Yield batches of at most `size` texts and about `MAX_TOKENS` tokens, in order."""
    batch: list[str] = []
    tokens = 0
    for text in texts:
        need = estimate_tokens(text)
        if batch and (len(batch) == size or tokens + need > MAX_TOKENS):
            yield batch
            batch, tokens = [], 0
        batch.append(text)
        tokens += need
    if batch:
        yield batch


@dataclass(slots=True)
class Waiting:
    texts: Sequence[str]
    made: asyncio.Future[Embeddings]


class Batcher:
    """Collects texts for one model for a few milliseconds and embeds them in one call."""

    def __init__(self, embed: Embed, size: int, gather: float = GATHER) -> None:
        self._embed = embed
        self._size = size
        self._gather = gather
        self._waiting: list[Waiting] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        if len(texts) >= self._size:
            return joined([await self._embed(batch) for batch in cut(texts, self._size)])
        waiting = Waiting(texts, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return await waiting.made

    async def _send(self) -> None:
        await asyncio.sleep(self._gather)
        waiting, self._waiting = self._waiting, []
        await self._answer(waiting)

    async def _answer(self, waiting: Sequence[Waiting]) -> None:
        try:
            texts = list(chain.from_iterable(one.texts for one in waiting))
            made = joined([await self._embed(batch) for batch in cut(texts, self._size)])
        except Exception as error:
            if len(waiting) > 1 and isinstance(error, ProviderError) and error.of_request:
                # Retry each request alone, so that one bad text does not fail the others.
                await asyncio.gather(*(self._answer([one]) for one in waiting))
                return
            for one in waiting:
                if not one.made.done():
                    one.made.set_exception(error)
            return
        start = 0
        for one in waiting:
            part = share(made, start, len(one.texts))
            start += len(one.texts)
            if not one.made.done():
                one.made.set_result(part)


def joined(parts: Sequence[Embeddings]) -> Embeddings:
    if len(parts) == 1:
        return parts[0]
    vectors = np.concatenate([part.vectors for part in parts])
    return Embeddings(vectors, parts[-1].provider, parts[-1].model, sum((p.usage for p in parts), Usage()))


def share(made: Embeddings, start: int, count: int) -> Embeddings:
    """Return the rows of one request, with its share of the cost."""
    if count == len(made):
        return made
    part = count / len(made)
    usage = Usage(round(made.usage.prompt_tokens * part), 0, made.usage.cost * part)
    return Embeddings(made.vectors[start : start + count], made.provider, made.model, usage)
