"""Sentence vectors from the small static model that comes inside the wordllama wheel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from shiftboss.ai.protocol import Vectors

MODEL = "wordllama-l2-supercat-256"
DIMENSIONS = 256


@cache
def _model() -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # workers fork; the tokenizer warns about it
    import wordllama

    home = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=home, dim=DIMENSIONS, disable_download=True)


def embed(texts: Sequence[str]) -> Vectors:
    """Unit vectors, one row per text; a text without a known word gets a fixed unit vector, never NaN."""
    if not texts:
        return np.zeros((0, DIMENSIONS), dtype=np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        raw = np.asarray(_model().embed(list(texts), norm=False), dtype=np.float32)
    raw = np.nan_to_num(raw)
    norms = np.linalg.norm(raw, axis=1, keepdims=True)
    empty = norms[:, 0] < 1e-12
    raw[empty, 0] = 1.0
    norms[empty] = 1.0
    return np.asarray(raw / norms, dtype=np.float32)
