"""VADER's polarity of English texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from shiftboss.extensions.ai.protocol import Vectors

WEIGHTS = {"compound": 0.3, "pos": 0.5, "neg": 0.5}  # beside a unit vector


@cache
def _vader() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


def polarity(text: str) -> float:
    """From -1 to 1."""
    return float(_vader().polarity_scores(text)["compound"])


def polarities(texts: Sequence[str]) -> Vectors:
    found = [_vader().polarity_scores(text) for text in texts]
    rows = [[weight * each[name] for name, weight in WEIGHTS.items()] for each in found]
    return np.asarray(rows, dtype=np.float32).reshape(len(texts), len(WEIGHTS))
