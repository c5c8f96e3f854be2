"""Sentiment, emotion and theme of a text by three small linear models over what its sentences mean.

bench/journal_model.py fits them. All of them read English: other languages are glossed word by word.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files

import numpy as np

from shiftboss.extensions.ai.protocol import Vectors
from shiftboss.extensions.ai.providers.local import encoder
from shiftboss.extensions.ai.providers.local.labels import label_set
from shiftboss.extensions.ai.providers.local.text import Text
from shiftboss.extensions.ai.providers.local.vader import polarities

FAMILIES = ("emotions", "themes")
CUE_WEIGHT, MOST_CUES = 0.15, 2
KEPT = 2048  # texts; sentiment, emotion and theme of an entry are asked for one after the other


def features(texts: Sequence[str]) -> Vectors:
    """One row per English text: its vector, VADER's findings, the described labels' cue words, and 1."""
    cues = [np.minimum(label_set(family).cue_counts(texts), MOST_CUES) for family in FAMILIES]
    columns = [encoder.encode(texts), polarities(texts), *(CUE_WEIGHT * found for found in cues)]
    return np.concatenate([*columns, np.ones((len(texts), 1))], axis=1).astype(np.float32)


_one_at_a_time = threading.Lock()  # the tasks of an entry run together: the first makes the row for all


@lru_cache(maxsize=KEPT)
def _row(text: str) -> Vectors:
    return np.asarray(features([text])[0])


@cache
def _models() -> dict[str, tuple[list[str], Vectors]]:
    with files(__package__).joinpath("model", "classifier.npz").open("rb") as source:
        stored = dict(np.load(source))
    tasks = sorted({name.partition(".")[0] for name in stored})
    return {task: (list(map(str, stored[f"{task}.names"])), stored[f"{task}.weights"]) for task in tasks}


def names(task: str) -> list[str]:
    return _models()[task][0]


def shares(task: str, texts: Sequence[str]) -> Vectors:
    """One row per English text, one column per name of the task; a row adds up to 1."""
    with _one_at_a_time:
        rows = [_row(text) for text in texts]
    scores = np.stack(rows) @ _models()[task][1]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)


def judge(task: str, text: Text) -> dict[str, float]:
    """The share of each name in the whole text; parts of a long one count by their length."""
    parts = encoder.windows(text)
    lengths = np.asarray([len(part) for part in parts], dtype=np.float32)
    mixed = lengths / lengths.sum() @ shares(task, parts)
    return dict(zip(names(task), map(float, mixed), strict=True))
