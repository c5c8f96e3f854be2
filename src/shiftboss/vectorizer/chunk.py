"""Chunk: cut a text into pieces that a model can take."""

from __future__ import annotations

from collections.abc import Callable

from semantic_text_splitter import TextSplitter

from shiftboss.model.vectorizer import Vectorizer

Cut = Callable[[str], list[str]]


def chunker(vectorizer: Vectorizer) -> Cut:
    """The vectorizer's way of cutting; a text that fits is one piece, an empty one none."""
    cut = WAYS[vectorizer.chunking](vectorizer)

    def chunks(text: str) -> list[str]:
        if not text or vectorizer.chunking == "none" or len(text) <= vectorizer.chunk_size:
            return [text] if text else []
        return cut(text)

    return chunks


def by_sentences(vectorizer: Vectorizer) -> Cut:
    """As large as fits, cut where the meaning breaks best: paragraph, sentence, word."""
    splitter = TextSplitter(vectorizer.chunk_size, overlap=vectorizer.chunk_overlap)
    return lambda text: list(splitter.chunks(text))


def by_characters(vectorizer: Vectorizer) -> Cut:
    """Windows of equal size."""
    size, overlap = vectorizer.chunk_size, vectorizer.chunk_overlap
    step = size - overlap
    return lambda text: [text[at : at + size] for at in range(0, max(len(text) - overlap, 1), step)]


WAYS: dict[str, Callable[[Vectorizer], Cut]] = {
    "sentences": by_sentences,
    "characters": by_characters,
    "none": lambda _: lambda text: [text],
}
