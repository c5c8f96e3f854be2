"""Sentence vectors from the small static model that comes inside the wordllama wheel."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shiftboss.extensions.ai.protocol import Vectors

MODEL = "wordllama-l2-supercat-256"
DIMENSIONS = 256
LONGEST = 50_000  # characters; a longer text is the mean of its pieces, as it would be of its tokens
MOST_BYTES = 200_000  # of a batch, each text as long as the longest: a kilobyte of memory for every token


@cache
def _model() -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # workers fork; the tokenizer warns about it
    import wordllama

    home = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=home, dim=DIMENSIONS, disable_download=True)


def tokenizer_file() -> Path:
    """How the model cuts texts into tokens, as Hugging Face's libraries read it."""
    import wordllama

    return Path(wordllama.__file__).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"


class Piece(NamedTuple):
    """A text, or its `share` of one that is too long."""

    owner: int
    text: str
    share: float


def _pieces(number: int, text: str) -> Iterator[Piece]:
    for start in range(0, max(1, len(text)), LONGEST):
        piece = text[start : start + LONGEST]
        yield Piece(number, piece, len(piece) / len(text) if text else 1.0)


def _batches(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """The model fills every text of a batch up to its longest: so texts of like length go together."""
    batch: list[Piece] = []
    for size, piece in sorted(
        ((len(piece.text.encode()), piece) for piece in pieces), key=lambda each: each[0]
    ):
        if batch and size * (len(batch) + 1) > MOST_BYTES:
            yield batch
            batch = []
        batch.append(piece)
    if batch:
        yield batch


def embed(texts: Sequence[str], dimensions: int = DIMENSIONS) -> Vectors:
    """Unit vectors, one row per text; a text without a known word gets a fixed unit vector, never NaN.

    The model's leading dimensions carry the most meaning, so fewer `dimensions` are a cut.
    """
    if not texts:
        return np.zeros((0, dimensions), dtype=np.float32)
    raw = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    pieces = [piece for number, text in enumerate(texts) for piece in _pieces(number, text)]
    for batch in _batches(pieces):
        with np.errstate(invalid="ignore", divide="ignore"):
            made = np.nan_to_num(_model().embed([piece.text for piece in batch], norm=False))
        shares = np.asarray([[piece.share] for piece in batch], dtype=np.float32)
        np.add.at(raw, [piece.owner for piece in batch], made * shares)
    raw = raw[:, :dimensions]
    norms = np.linalg.norm(raw, axis=1, keepdims=True)
    empty = norms[:, 0] < 1e-12
    raw[empty, 0] = 1.0
    norms[empty] = 1.0
    return np.asarray(raw / norms, dtype=np.float32)
