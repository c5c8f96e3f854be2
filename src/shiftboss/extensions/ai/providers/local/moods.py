"""Sentiment and emotions of a text, and the sentences that carry them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shiftboss.extensions.ai.answers import NEUTRAL_BAND
from shiftboss.extensions.ai.providers.local import classifier
from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.labels import label_set
from shiftboss.extensions.ai.providers.local.text import Text
from shiftboss.extensions.ai.providers.local.vader import polarity

EMOTIONS = ("joy", "sadness", "anger", "fear", "surprise")
CLEAR = 0.2  # evidence of the emotion from which a sentence counts as its trigger
MOST_TRIGGERS = 2


def emotion_profile(text: Text) -> tuple[dict[str, float], float]:
    """The five emotions, each 0–1, and the neutral share."""
    if not text.sentences:
        return dict.fromkeys(EMOTIONS, 0.0), 1.0
    shares = classifier.judge("emotion", text)
    return {name: round(shares[name], 3) for name in EMOTIONS}, shares["neutral"]


def overall(text: Text) -> tuple[float, float]:
    """Score -1–1, within the neutral band where neutral is likeliest, and the strength of the words, 0–1.

    The square roots leave room at the ends, where the shares of strong feelings crowd.
    """
    if not text.sentences:
        return 0.0, 0.0
    shares = classifier.judge("sentiment", text)
    good, bad = shares["positive"] ** 0.5, shares["negative"] ** 0.5
    lean = (good - bad) / (good + bad)
    if shares["neutral"] >= max(shares["positive"], shares["negative"]):
        lean *= 0.9 * NEUTRAL_BAND
    else:
        lean = max(abs(lean), NEUTRAL_BAND) * (1 if lean > 0 else -1)
    words = [abs(polarity(gloss(sentence, text.tongue))) for sentence in text.sentences]
    return round(lean, 3), round(max(*words, abs(lean)), 3)


def label_of(score: float) -> str:
    if abs(score) < NEUTRAL_BAND:
        return "neutral"
    return "positive" if score > 0 else "negative"


def analyse_sentiment(text: Text) -> dict[str, Any]:
    emotions, neutral = emotion_profile(text)
    score, magnitude = overall(text)
    shares = classifier.judge("sentiment", text) if text.sentences else {"neutral": 0.0, "positive": 0.0}
    return {
        "processed_data": {
            "overall_sentiment": {"score": score, "label": label_of(score), "magnitude": magnitude},
            "emotions": emotions,
            "emotional_intensity": round((1 - neutral + magnitude) / 2, 3),
        },
        "confidence_score": _confidence(text, shares.values()),
    }


def detect_emotions(text: Text) -> dict[str, Any]:
    emotions, neutral = emotion_profile(text)
    best = max(emotions, key=lambda name: emotions[name])
    dominant = best if emotions[best] > neutral else "neutral"
    return {
        "processed_data": {
            "emotions": emotions,
            "dominant_emotion": dominant,
            "emotional_intensity": round(1 - neutral, 3),
            "triggers": _triggers(text, best) if dominant != "neutral" else [],
        },
        "confidence_score": _confidence(text, [*emotions.values(), neutral]),
    }


def _confidence(text: Text, shares: Iterable[float]) -> float:
    """How far the first share is ahead of the second, less where there is little to go by."""
    first, second, *_ = sorted(shares, reverse=True)
    return round(min(1.0, text.evidence * (0.2 + 0.8 * (first - second))), 3)


def _triggers(text: Text, emotion: str) -> list[str]:
    labels = label_set("emotions")
    column = labels.scores([gloss(each, text.tongue) for each in text.sentences])[
        :, labels.names.index(emotion)
    ]
    ranked = sorted(range(len(text.sentences)), key=lambda number: -column[number])
    return [text.sentences[number] for number in ranked[:MOST_TRIGGERS] if column[number] > CLEAR]
