"""Splits texts into chunks that fit a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from shiftboss.extensions.vectorizer.model import VectorizerSpec

Cut = Callable[[str], list[str]]
SEPARATORS = ("\n\n", "\n", ". ", "? ", "! ", "; ", ", ", " ")
HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
FENCE = re.compile(r" {0,3}(```+|~~~+)")
TOKENIZER = "text-embedding-3-small"  # for models with unknown tokenizers; accurate enough for a size limit


def chunker(vectorizer: VectorizerSpec) -> Cut:
    """Return the vectorizer's function that splits a text; an empty text has no chunks."""
    cut = CHUNKERS[vectorizer.chunking](vectorizer)
    return lambda text: cut(text) if text else []


def by_sentences(vectorizer: VectorizerSpec) -> Cut:
    """Split at paragraphs, sentences or words, into chunks that are as large as possible."""
    splitter = TextSplitter(vectorizer.chunk_size, overlap=vectorizer.chunk_overlap)
    return _unless_it_fits(vectorizer, lambda text: list(splitter.chunks(text)))


def by_characters(vectorizer: VectorizerSpec) -> Cut:
    """Split into windows of equal size."""
    size, overlap = vectorizer.chunk_size, vectorizer.chunk_overlap
    step = size - overlap
    return lambda text: [text[at : at + size] for at in range(0, max(len(text) - overlap, 1), step)]


def by_tokens(vectorizer: VectorizerSpec) -> Cut:
    """Split like `by_sentences`, with sizes in tokens of the model."""
    splitter = _token_splitter(vectorizer)
    return lambda text: list(splitter.chunks(text))


def _token_splitter(vectorizer: VectorizerSpec) -> TextSplitter:
    size, overlap = vectorizer.chunk_size, vectorizer.chunk_overlap
    if vectorizer.provider == "local":
        from shiftboss.extensions.ai.providers.local.embedder import tokenizer_file

        return TextSplitter.from_huggingface_tokenizer_file(str(tokenizer_file()), size, overlap)
    try:
        return TextSplitter.from_tiktoken_model(vectorizer.model or TOKENIZER, size, overlap)
    except Exception:  # the library raises a plain Exception for an unknown model
        return TextSplitter.from_tiktoken_model(TOKENIZER, size, overlap)


def by_markdown(vectorizer: VectorizerSpec) -> Cut:
    """Split at headings, and long sections further by the structure of Markdown."""
    splitter = MarkdownSplitter(vectorizer.chunk_size, overlap=vectorizer.chunk_overlap)
    cut = _unless_it_fits(vectorizer, lambda text: list(splitter.chunks(text)))
    return lambda text: [piece for section in sections(text) for piece in cut(section)]


def sections(text: str) -> Iterator[str]:
    """Yield the sections, each beginning with its heading. A # in a code block is not a heading."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        if found := FENCE.match(line):
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        elif not fence and HEADING.match(line):
            yield from _stripped(lines)
            lines = []
        lines.append(line)
    yield from _stripped(lines)


def _stripped(lines: Sequence[str]) -> Iterator[str]:
    if whole := "".join(lines).strip():
        yield whole


def by_separators(vectorizer: VectorizerSpec) -> Cut:
    """Split at the first separator, longer pieces at the next, and so on; then join small pieces."""
    separators = tuple(filter(None, vectorizer.separators or SEPARATORS))
    size, overlap = vectorizer.chunk_size, vectorizer.chunk_overlap
    return _unless_it_fits(
        vectorizer, lambda text: list(_joined(_pieces(text, separators, size), size, overlap))
    )


def _pieces(text: str, separators: Sequence[str], size: int) -> Iterator[str]:
    """Yield pieces of at most `size` characters that together are the text."""
    if len(text) <= size:
        yield text
    elif not separators:
        yield from (text[at : at + size] for at in range(0, len(text), size))
    else:
        parts = text.split(separators[0])
        for part in (*(part + separators[0] for part in parts[:-1]), parts[-1]):
            yield from _pieces(part, separators[1:], size)


def _joined(pieces: Iterator[str], size: int, overlap: int) -> Iterator[str]:
    held: list[str] = []
    for piece in pieces:
        if held and sum(map(len, held)) + len(piece) > size:
            yield from _stripped(held)
            held = _tail(held, min(overlap, size - len(piece)))
        held.append(piece)
    yield from _stripped(held)


def _tail(pieces: Sequence[str], most: int) -> list[str]:
    """Return the last pieces with at most `most` characters in total."""
    sizes = accumulate(len(piece) for piece in reversed(pieces))
    count = sum(1 for size in sizes if size <= most)
    return list(pieces[len(pieces) - count :])


def _unless_it_fits(vectorizer: VectorizerSpec, cut: Cut) -> Cut:
    return lambda text: [text] if len(text) <= vectorizer.chunk_size else cut(text)


CHUNKERS: dict[str, Callable[[VectorizerSpec], Cut]] = {
    "sentences": by_sentences,
    "characters": by_characters,
    "separators": by_separators,
    "tokens": by_tokens,
    "markdown": by_markdown,
    "none": lambda _: lambda text: [text],
}
