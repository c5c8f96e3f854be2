"""Themes, activities and free classification: which described labels a text is near."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from shiftboss.extensions.ai.providers.local import classifier
from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.labels import Label, LabelSet, label_set
from shiftboss.extensions.ai.providers.local.phrases import key_phrases
from shiftboss.extensions.ai.providers.local.text import Text

THEME_FLOOR = 0.25  # share from which a theme beside the first is told
ACTIVITY_FLOOR = 0.34
MOST_THEMES = 3


def _confidence(score: float) -> float:
    """Evidence (about 0–0.9) on a 0–1 scale."""
    return round(float(min(0.98, max(0.05, 0.1 + 1.25 * score))), 3)


def identify_themes(text: Text) -> dict[str, Any]:
    if not text.words:
        empty: dict[str, Any] = {"primary_themes": [], "topic_distribution": {}, "related_concepts": []}
        return {"processed_data": empty, "confidence_score": 0.0}
    shares = classifier.judge("theme", text)
    ranked = sorted(shares, key=lambda name: -shares[name])[:MOST_THEMES]
    kept = [name for number, name in enumerate(ranked) if number == 0 or shares[name] >= THEME_FLOOR]
    themes = [{"theme": name, "confidence": round(shares[name], 3)} for name in kept]
    margin = shares[ranked[0]] - shares[ranked[1]]
    return {
        "processed_data": {
            "primary_themes": themes,
            "topic_distribution": _topics(shares),
            "related_concepts": key_phrases(text, most=5, longest=1),
        },
        "confidence_score": round(min(1.0, text.evidence * (0.2 + 0.8 * margin)), 3),
    }


def _topics(shares: Mapping[str, float]) -> dict[str, float]:
    topics: dict[str, float] = defaultdict(float)
    for label in label_set("themes").labels:
        topics[label.group] += shares[label.name]
    kept = {name: share for name, share in topics.items() if share >= 0.05}
    total = sum(kept.values())
    ranked = sorted(kept.items(), key=lambda item: -item[1])
    return {name: round(share / total, 3) for name, share in ranked}


def recognise_activities(text: Text) -> dict[str, Any]:
    labels = label_set("activities")
    found: dict[str, dict[str, Any]] = {}
    for sentence, row in zip(text.sentences, _activity_rows(labels, text), strict=True):
        for i in np.argsort(-row)[:4]:
            if row[i] < ACTIVITY_FLOOR:
                break
            _keep_best(found, labels.labels[i], _confidence(row[i]), sentence)
    ranked = sorted(found.values(), key=lambda item: -item["confidence"])
    strength = max((item["confidence"] for item in ranked), default=0.3)
    return {
        "processed_data": {"activities": ranked},
        "confidence_score": round(min(1.0, text.evidence * strength), 3),
    }


def _activity_rows(labels: LabelSet, text: Text) -> Any:
    return (
        labels.scores([gloss(sentence, text.tongue) for sentence in text.sentences]) if text.sentences else []
    )


def _keep_best(found: dict[str, dict[str, Any]], label: Label, confidence: float, sentence: str) -> None:
    if label.name not in found or found[label.name]["confidence"] < confidence:
        found[label.name] = {
            "activity": label.name,
            "category": label.group,
            "confidence": confidence,
            "evidence": sentence,
        }


@lru_cache(maxsize=64)
def _adhoc(described: tuple[tuple[str, str], ...]) -> LabelSet:
    def label(name: str, description: str) -> Label:
        words = name.replace("_", " ").replace("-", " ")
        examples = (words, f"{words} {description}") if description else (words,)
        return Label(name, name, examples, tuple(w for w in words.lower().split() if len(w) > 2))

    return LabelSet([label(name, description) for name, description in described])


def classify(text: Text, given: Mapping[str, str] | Sequence[str]) -> dict[str, Any]:
    """The nearest of the given labels; descriptions make it surer."""
    described = tuple(given.items()) if isinstance(given, Mapping) else tuple((name, "") for name in given)
    if not described:
        raise ValueError("classification needs at least one label in variables['labels']")
    labels = _adhoc(described)
    scores = labels.scores([text.raw])[0]
    shares = LabelSet.shares(scores)
    order = np.argsort(-scores)
    ranked = [{"theme": labels.names[i], "confidence": round(float(shares[i]), 3)} for i in order]
    best = ranked[0]
    return {
        "processed_data": {
            "label": best["theme"],
            "confidence": best["confidence"],
            "alternatives": ranked[1:4],
        },
        "confidence_score": round(min(1.0, float(best["confidence"]) * (0.5 + 0.5 * text.evidence)), 3),
    }
