"""Sentiment and emotions: VADER or a lexicon for polarity, labels and cue words for the emotions."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from shiftboss.extensions.ai.answers import NEUTRAL_BAND
from shiftboss.extensions.ai.protocol import Vectors
from shiftboss.extensions.ai.providers.local.labels import CUE_WEIGHT, LabelSet, cue_pattern, label_set
from shiftboss.extensions.ai.providers.local.names import Lexicon, lexicon
from shiftboss.extensions.ai.providers.local.text import Text

EMOTIONS = ("joy", "sadness", "anger", "fear", "surprise")
DARK = ("sadness", "anger", "fear")
POLARITY = {"joy": 1.0, "sadness": -0.9, "anger": -0.9, "fear": -0.7, "surprise": 0.3, "neutral": 0.0}
POLARITY_WEIGHT = 0.12
NEUTRAL_BASE = 0.06  # without a cue a text is neutral, whatever its words resemble
EVEN_SHARE = 1 / 6  # what an emotion gets from a text that says nothing: five of them and neutral
FELT_WEIGHT = 1.1


@cache
def _vader() -> Any:
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    return SentimentIntensityAnalyzer()


def polarity(sentence: str, language: str = "en") -> float:
    """From -1 to 1: VADER for English, the lexicon's words for others."""
    if language == "en":
        return float(_vader().polarity_scores(sentence)["compound"])
    words = lexicon(language)
    good = [*words.words("positive"), *words.cues("emotions", "joy")]
    bad = [*words.words("negative"), *(cue for name in DARK for cue in words.cues("emotions", name))]
    sum_ = _signed(sentence, words, tuple(good)) - _signed(sentence, words, tuple(bad))
    return sum_ / math.sqrt(sum_ * sum_ + 2.0)


def _signed(sentence: str, words: Lexicon, cues: tuple[str, ...]) -> int:
    """How many of the cues occur; one behind a negation counts against it."""
    pattern = cue_pattern(cues)
    hits = pattern.finditer(sentence) if pattern else ()
    signs = ((hit, -1 if words.negated.search(sentence[: hit.start()]) else 1) for hit in hits)
    return sum(2 * sign if " " in hit.group() else sign for hit, sign in signs)


def emotion_rows(text: Text) -> tuple[Vectors, Vectors]:
    """Shares of the emotions and of `neutral` per sentence, and each sentence's weight in the whole."""
    labels = label_set("emotions")
    scores = labels.scores(text.sentences, text.tongue) - _negated(labels, text.sentences, text.tongue)
    moods = np.asarray([polarity(s, text.tongue) for s in text.sentences], dtype=np.float32)
    lean = np.asarray([POLARITY[name] for name in labels.names], dtype=np.float32)
    scores[:, labels.names.index("neutral")] += NEUTRAL_BASE
    scores = scores + POLARITY_WEIGHT * moods[:, None] * lean[None, :]
    rows = np.stack([LabelSet.shares(row) for row in scores])
    # A sentence that says much about feelings speaks louder than one that says nothing.
    feeling = 1.0 - rows[:, labels.names.index("neutral")]
    weights = (feeling**2 + 0.02).astype(np.float32)
    return rows, weights / weights.sum()


def _negated(labels: LabelSet, sentences: list[str], language: str) -> Vectors:
    """Twice the cue weight where a cue stands behind a negation: "not happy" is no joy."""
    penalty = np.zeros((len(sentences), len(labels.labels)), dtype=np.float32)
    negated = lexicon(language).negated
    for row, sentence in enumerate(sentences):
        for column, label in enumerate(labels.labels):
            if (pattern := label.pattern(language)) is None:
                continue
            hits = (negated.search(sentence[: m.start()]) for m in pattern.finditer(sentence))
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
    compounds = [polarity(sentence, text.tongue) for sentence in text.sentences] or [0.0]
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
