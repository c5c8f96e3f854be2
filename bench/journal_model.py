"""Fits the three linear models (sentiment, emotion, theme) that the local provider reads entries with.

    python bench/journal_model.py

They are fitted to the tuned texts of journal_labels.jsonl, to journal_training.jsonl and to the examples of
labels.yaml, never to a held-out text or a check set.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import shiftboss.extensions.ai.providers.local as local
from shiftboss.extensions.ai.providers.local.classifier import features
from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.labels import label_set

HERE = Path(__file__).parent
MODEL = Path(local.__file__).parent / "model"
DECAY, STEPS, RATE, MOMENTUM = 0.1, 400, 0.5, 0.9
Example = dict[str, Any]


def read(name: str) -> list[Example]:
    rows = [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if not row.get("held_out")]


def examples() -> list[Example]:
    described = [
        {"text": text, "themes": [label.name]}
        for label in label_set("themes").labels
        for text in label.examples
    ]
    felt = [
        {"text": text, "emotion": label.name}
        for label in label_set("emotions").labels
        for text in label.examples
    ]
    rows = [*read("journal_labels.jsonl"), *read("journal_training.jsonl"), *described, *felt]
    return [row | {"theme": row["themes"][0]} if "themes" in row else row for row in rows]


def fit(rows: np.ndarray[Any, Any], labels: Sequence[str]) -> tuple[list[str], np.ndarray[Any, Any]]:
    """Multinomial logistic regression by gradient descent from zero: the same weights on every run."""
    names = sorted(set(labels))
    wanted = np.asarray([[name == label for name in names] for label in labels], dtype=np.float64)
    weights = np.zeros((rows.shape[1], len(names)))
    speed = np.zeros_like(weights)
    for _ in range(STEPS):
        scores = rows @ weights
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        error = powers / powers.sum(axis=1, keepdims=True) - wanted
        speed = MOMENTUM * speed + (rows.T @ error + DECAY * weights) / len(rows)
        weights -= RATE * speed
    return names, weights.astype(np.float32)


def make_classifier() -> None:
    rows = examples()
    found = features([gloss(row["text"], row.get("language", "en")) for row in rows]).astype(np.float64)
    made: dict[str, Any] = {}
    for task in ("sentiment", "emotion", "theme"):
        chosen = [number for number, row in enumerate(rows) if task in row]
        names, made[f"{task}.weights"] = fit(found[chosen], [rows[number][task] for number in chosen])
        made[f"{task}.names"] = np.asarray(names)
    np.savez_compressed(MODEL / "classifier.npz", **made)


if __name__ == "__main__":
    make_classifier()
