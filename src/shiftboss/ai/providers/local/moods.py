"""Sentiment and emotions: VADER for polarity, described labels and cue words for the five emotions."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from shiftboss.ai.protocol import Vectors
from shiftboss.ai.providers.local.labels import CUE_WEIGHT, LabelSet, label_set
from shiftboss.ai.providers.local.text import Text

EMOTIONS = ("joy", "sadness", "anger", "fear", "surprise")
POLARITY = {"joy": 1.0, "sadness": -0.9, "anger": -0.9, "fear": -0.7, "surprise": 0.0, "neutral": 0.0}
POLARITY_WEIGHT = 0.12
NEGATED = re.compile(
    r"\b(?:not|never|no longer|isn't|wasn't|aren't|don't|didn't|without|hardly)\s+(?:\w+\s+)?$", re.I
)
NEUTRAL_BAND = 0.08
EVEN_SHARE = 1 / 6  # what an emotion gets from a text that says nothing: five of them and neutral
FELT_WEIGHT = 1.1


@cache
def _vader() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


def polarity(sentence: str) -> float:
    return float(_vader().polarity_scores(sentence)["compound"])


def emotion_rows(text: Text) -> tuple[Vectors, Vectors]:
    """Shares of the emotions and of `neutral` per sentence, and each sentence's weight in the whole."""
    labels = label_set("emotions")
    scores = labels.scores(text.sentences) - _negated(labels, text.sentences)
    moods = np.asarray([polarity(s) for s in text.sentences], dtype=np.float32)
    lean = np.asarray([POLARITY[name] for name in labels.names], dtype=np.float32)
    scores = scores + POLARITY_WEIGHT * moods[:, None] * lean[None, :]
    rows = np.stack([LabelSet.shares(row) for row in scores])
    # A sentence that says much about feelings speaks louder than one that says nothing.
    feeling = 1.0 - rows[:, labels.names.index("neutral")]
    weights = (feeling**2 + 0.02).astype(np.float32)
    return rows, weights / weights.sum()


def _negated(labels: LabelSet, sentences: list[str]) -> Vectors:
    """Twice the cue weight where a cue stands behind a negation: "not happy" is no joy."""
    penalty = np.zeros((len(sentences), len(labels.labels)), dtype=np.float32)
    for row, sentence in enumerate(sentences):
        for column, label in enumerate(labels.labels):
            if label.pattern is None:
                continue
            hits = (NEGATED.search(sentence[: m.start()]) for m in label.pattern.finditer(sentence))
            penalty[row, column] = 2 * CUE_WEIGHT * sum(1 for hit in hits if hit)
    return penalty


def emotion_profile(text: Text) -> tuple[dict[str, float], float]:
    """The five emotions, each 0–1, and the neutral share."""
    if not text.sentences:
        return dict.fromkeys(EMOTIONS, 0.0), 1.0
    rows, weights = emotion_rows(text)
    shares = dict(zip(label_set("emotions").names, (weights @ rows).tolist(), strict=True))
    neutral = shares.pop("neutral")
    return {name: round(_clip(shares[name]), 3) for name in EMOTIONS}, neutral


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


def overall(text: Text, emotions: dict[str, float]) -> tuple[float, float]:
    """Score -1–1 and magnitude 0–1. Emotions help where VADER's word list is silent."""
    compounds = [polarity(sentence) for sentence in text.sentences] or [0.0]
    weights = [abs(c) + 0.1 for c in compounds]
    score = sum(c * w for c, w in zip(compounds, weights, strict=True)) / sum(weights)
    felt = sum(POLARITY[name] * max(0.0, emotions[name] - EVEN_SHARE) for name in EMOTIONS)
    mixed = 0.75 * score + FELT_WEIGHT * felt
    return round(max(-1.0, min(1.0, mixed)), 3), round(max(abs(c) for c in compounds), 3)


def label_of(score: float) -> str:
    if abs(score) < NEUTRAL_BAND:
        return "neutral"
    return "positive" if score > 0 else "negative"


def analyse_sentiment(text: Text) -> dict[str, Any]:
    emotions, neutral = emotion_profile(text)
    score, magnitude = overall(text, emotions)
    decided = abs(abs(score) - NEUTRAL_BAND) / (1 - NEUTRAL_BAND)
    return {
        "processed_data": {
            "overall_sentiment": {"score": score, "label": label_of(score), "magnitude": magnitude},
            "emotions": emotions,
            "emotional_intensity": round(_clip((1 - neutral + magnitude) / 2), 3),
        },
        "confidence_score": round(_clip(text.evidence * (0.35 + 0.65 * min(1.0, decided * 2))), 3),
    }


def detect_emotions(text: Text) -> dict[str, Any]:
    emotions, neutral = emotion_profile(text)
    ranked = sorted([*emotions.values(), neutral], reverse=True)
    best = max(emotions, key=lambda name: emotions[name])
    dominant = best if emotions[best] > neutral else "neutral"
    return {
        "processed_data": {
            "emotions": emotions,
            "dominant_emotion": dominant,
            "emotional_intensity": round(_clip(1 - neutral), 3),
            "triggers": _triggers(text, best) if dominant != "neutral" else [],
        },
        "confidence_score": round(_clip(text.evidence * (0.25 + 1.2 * (ranked[0] - ranked[1]))), 3),
    }


def _triggers(text: Text, emotion: str) -> list[str]:
    rows, _ = emotion_rows(text)
    column = rows[:, label_set("emotions").names.index(emotion)]
    order = np.argsort(-column)[:2]
    return [text.sentences[i] for i in order if column[i] > 0.3]
