"""The local provider: modest but real language processing in this process, without key or network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, TypeVar

from shiftboss.extension import missing
from shiftboss.extensions.ai.errors import Refused, Unsuitable
from shiftboss.extensions.ai.protocol import (
    Capability,
    Chat,
    Cost,
    Embeddings,
    Latency,
    Origin,
    Reply,
    Usage,
    estimate_tokens,
)
from shiftboss.extensions.ai.providers.local import embedder, encoder, multilingual
from shiftboss.extensions.ai.providers.local.extraction import extract_content
from shiftboss.extensions.ai.providers.local.insight import generate_insights
from shiftboss.extensions.ai.providers.local.moods import analyse_sentiment, detect_emotions
from shiftboss.extensions.ai.providers.local.structuring import parse_raw
from shiftboss.extensions.ai.providers.local.text import Text
from shiftboss.extensions.ai.providers.local.topics import classify, identify_themes, recognise_activities

ResultT = TypeVar("ResultT")
Analyser = Callable[[Text, Mapping[str, Any]], Mapping[str, Any] | str]

ANALYSERS: dict[str, Analyser] = {
    "raw_data_parsing": lambda text, given: parse_raw(text, given.get("source")),
    "content_extraction": lambda text, given: extract_content(text),
    "sentiment_analysis": lambda text, given: analyse_sentiment(text),
    "theme_identification": lambda text, given: identify_themes(text),
    "emotion_detection": lambda text, given: detect_emotions(text),
    "activity_recognition": lambda text, given: recognise_activities(text),
    "insight_generation": generate_insights,
    "classification": lambda text, given: classify(text, given.get("labels") or ()),
}

EMBEDDERS = {made.MODEL: made for made in (embedder, encoder, multilingual)}


def register(task_type: str, analyser: Analyser) -> None:
    """Teach the local provider another template or task type; it returns what the schema accepts."""
    ANALYSERS[task_type] = analyser


class LocalProvider:
    """Analysers by task type, and three embedding models. Free, deterministic, always there."""

    name = "local"
    model = "local-rules-2"
    embedding_model = embedder.MODEL
    embedding_batch = 1024
    capabilities = frozenset({Capability.COMPLETION, Capability.EMBEDDING})
    cost = Cost()

    def __init__(self) -> None:
        self.latency = Latency()

    async def complete(self, chat: Chat) -> Reply:
        """By the analyser of the template's name; this process has no model that writes free text."""
        analyser = ANALYSERS.get(chat.name)
        if analyser is None:
            known = ", ".join(sorted(ANALYSERS))
            raise Unsuitable(
                self.name,
                f"it answers only the built-in analyses, not {chat.name!r}",
                hint=f"the local provider knows {known}",
            )
        started = time.perf_counter()
        try:
            # numpy and the tokenizer let go of the GIL; the loop must keep beating meanwhile
            payload = await _in_thread(analyser, Text(chat.content), chat.variables)
        except ValueError as error:
            raise Unsuitable(self.name, "cannot analyse this text", detail=str(error)) from None
        self.latency.observe(time.perf_counter() - started)
        usage = Usage(prompt_tokens=estimate_tokens(chat.content))
        return Reply(payload, self.model, usage, self.name)

    async def stream(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        """An analysis is made in one piece, and comes as one."""
        reply = await self.complete(chat)
        yield reply.text
        yield reply

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        origin: Origin | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        name = model or self.embedding_model
        if name not in EMBEDDERS:
            raise Refused(self.name, f"no embedding model {name!r}", hint=f"it has {', '.join(EMBEDDERS)}")
        made = EMBEDDERS[name]
        if dimensions is not None and dimensions > made.DIMENSIONS:
            raise Refused(self.name, f"{name} has {made.DIMENSIONS} dimensions, not {dimensions}")
        started = time.perf_counter()
        vectors = await _in_thread(made.embed, texts, dimensions or made.DIMENSIONS)
        self.latency.observe(time.perf_counter() - started)
        usage = Usage(prompt_tokens=sum(map(estimate_tokens, texts)))
        return Embeddings(vectors, self.name, name, usage)

    async def close(self) -> None:
        return None


async def _in_thread(work: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Run an analysis or an embedding in a thread, which loads its packages on first use."""
    try:
        return await asyncio.to_thread(work, *arguments)
    except ModuleNotFoundError as error:
        raise missing("the local AI provider", "ai", error) from error
