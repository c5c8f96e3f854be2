"""Stage 3, vectors: the embedding of the text, the vector of the context, and the semantic index."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.errors import Malformed
from shiftboss.extensions.ai.protocol import Embeddings
from shiftboss.extensions.ai.providers.local import multilingual
from shiftboss.extensions.ai.providers.local.terms import search_terms
from shiftboss.extensions.journal.entry import Entry
from shiftboss.extensions.journal.steps import Found, Inputs, Make, Results, Stage, Step, inputs_of, is_done

CONTEXT_MODEL = "journal-context-1"
EMOTIONS = ("joy", "sadness", "anger", "fear", "surprise")
TOPIC_SLOTS, ACTIVITY_SLOTS = 27, 24
ENOUGH_WORDS = 20
MOST_INDEXED = 2000  # dimensions that pgvector can index


def _select_text(entry: Entry, results: Results) -> Inputs:
    normal = results["data_normalization"].processed_data
    words = [*normal["tags"], *filter(None, [normal["location"]])]
    text = results["multimodal_integration"].processed_data["full_text"]
    return {"text": text, "words": words, "terms": search_terms(text)}


def embedding_model(ai: AI) -> str | None:
    """The local provider's multilingual model, or whatever another provider is configured to use."""
    return multilingual.MODEL if ai.embedding_provider == "local" else None


async def embed(inputs: Inputs, ai: AI) -> Found:
    """Embed the text together with its tags and place."""
    [found] = (await _embed({"": inputs}, ai)).values()
    if isinstance(found, Exception):
        raise found
    return found


async def embedding(entries: Iterable[Entry], ai: AI) -> Make:
    """Embed all entries without an embedding in one call; the returned function has their findings."""
    step = VECTORS.steps[0]
    wanted = {}
    for entry in entries:
        inputs, input_hash = inputs_of(step, entry, entry.results)
        if not is_done(step, input_hash, entry.results):
            wanted[input_hash] = inputs
    made = await _embed(wanted, ai)

    async def make(step: Step, inputs: Inputs, input_hash: str) -> Found:
        found = made.get(input_hash)
        if isinstance(found, Exception):
            raise found
        return found or await step.run(inputs, ai)

    return make


async def _embed(wanted: Mapping[str, Inputs], ai: AI) -> dict[str, Found | Exception]:
    """Embed texts in one call. If they are rejected, halve the call until the bad text is found."""
    if not wanted:
        return {}
    try:
        texts = [f"{one['text']}\n\n{', '.join(one['words'])}" for one in wanted.values()]
        made = await ai.embed(texts, model=embedding_model(ai))
    except Exception as error:
        if len(wanted) == 1 or not getattr(error, "of_request", False):
            return dict.fromkeys(wanted, error)
        keys, middle = list(wanted), len(wanted) // 2
        halves = ({key: wanted[key] for key in some} for some in (keys[:middle], keys[middle:]))
        return {key: found for half in halves for key, found in (await _embed(half, ai)).items()}
    pairs = zip(wanted.items(), made.vectors, strict=True)
    return {key: _found(inputs, made, vector) for (key, inputs), vector in pairs}


def _found(inputs: Inputs, made: Embeddings, given: Iterable[float]) -> Found | Exception:
    """Return the finding. Vectors of short texts are unreliable: the confidence reaches 1 at twenty words."""
    data = {"model": made.model, "dimensions": made.dimensions, "terms": inputs["terms"]}
    confidence = min(1.0, len(inputs["text"].split()) / ENOUGH_WORDS)
    vector = [round(float(x), 6) for x in given]
    if not all(map(math.isfinite, vector)):
        return Malformed(made.provider, "the vector contains NaN or infinity", "")
    return Found(data, confidence, made.provider, made.model, vector)


def _select_context(entry: Entry, results: Results) -> Inputs:
    mood = results["sentiment_analysis"]
    emotions, themes = results["emotion_detection"], results["theme_identification"]
    activities = results["activity_recognition"]
    used = (mood, emotions, themes, activities)
    return {
        "mood": mood.processed_data["overall_sentiment"],
        "emotions": emotions.processed_data["emotions"],
        "topics": themes.processed_data["topic_distribution"],
        "activities": {a["activity"]: a["confidence"] for a in activities.processed_data["activities"]},
        "local_time": entry.local_time.isoformat(),
        "confidence": sum(result.confidence_score for result in used) / len(used),
    }


async def vectorise_context(inputs: Inputs, ai: AI) -> Found:
    """Return a vector of mood, emotions, time, topics and activities, with the confidence of its inputs."""
    blocks = {
        "mood": [inputs["mood"]["score"], inputs["mood"]["magnitude"]],
        "emotions": [inputs["emotions"].get(name, 0.0) for name in EMOTIONS],
        "clock": _clock(datetime.fromisoformat(inputs["local_time"])),
        "topics": _hashed(inputs["topics"], TOPIC_SLOTS),
        "activities": _hashed(inputs["activities"], ACTIVITY_SLOTS),
    }
    vector = _unit([x for block in blocks.values() for x in _unit(block)])
    data = {
        "model": CONTEXT_MODEL,
        "dimensions": len(vector),
        "blocks": {name: len(block) for name, block in blocks.items()},
    }
    return Found(data, inputs["confidence"], "local", CONTEXT_MODEL, [round(x, 6) for x in vector])


def _clock(at: datetime) -> list[float]:
    turns = (at.hour / 24 + at.minute / 1440, at.weekday() / 7, (at.month - 1) / 12 + at.day / 372)
    return [wave(2 * math.pi * turn) for turn in turns for wave in (math.sin, math.cos)]


def _hashed(weights: Mapping[str, float], slots: int) -> list[float]:
    """Return the weights in a fixed number of slots, chosen by the hash of the name."""
    block = [0.0] * slots
    for name, weight in weights.items():
        place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % slots
        block[place] += weight
    return block


def _unit(block: list[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in block))
    return [x / length for x in block] if length else block


def _select_index(entry: Entry, results: Results) -> Inputs:
    embedding = results["embedding_generation"]
    return {
        "embedding": embedding.input_hash,
        "model": embedding.processed_data["model"],
        "dimensions": embedding.processed_data["dimensions"],
        "confidence": embedding.confidence_score,
        "terms": results["content_extraction"].processed_data["key_phrases"],
    }


async def index(inputs: Inputs, ai: AI) -> Found:
    """Return the index of the entry's vector, and its key phrases."""
    data: dict[str, Any] = {
        "index": f"embeddings_hnsw_{inputs['dimensions']}" if inputs["dimensions"] <= MOST_INDEXED else None,
        "metric": "cosine",
        "model": inputs["model"],
        "dimensions": inputs["dimensions"],
        "terms": inputs["terms"],
    }
    return Found(data, inputs["confidence"])


VECTORS = Stage(
    "vector_generation",
    (
        (
            Step("embedding_generation", _select_text, embed, version=2, paid=True),
            Step("context_vectorization", _select_context, vectorise_context),
        ),
        (Step("semantic_indexing", _select_index, index),),
    ),
)
