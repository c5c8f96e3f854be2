"""Insights: an entry held against what is known of its writer.

Variables read: `user_context` (with `historical_patterns`: typical_mood on 0–1 or -1–1, frequent_themes,
activity_patterns) and `history`, earlier entries, oldest first, each with `sentiment` (-1–1), `themes`,
`activities` and `date`, as far as they are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from shiftboss.extensions.ai.providers.local.moods import analyse_sentiment
from shiftboss.extensions.ai.providers.local.text import Text
from shiftboss.extensions.ai.providers.local.topics import identify_themes, recognise_activities

ADVICE = {
    "anger": "Write down what exactly was unfair, and decide tomorrow what to say about it.",
    "fear": "Name the worst case and one small step that would make it less likely.",
    "sadness": "Reach out to one person you trust today.",
    "joy": "Note what made this day good, so that you can plan for more of it.",
}
RECENT = 7


def generate_insights(text: Text, variables: Mapping[str, Any]) -> dict[str, Any]:
    mood = analyse_sentiment(text)
    themes = [t["theme"] for t in identify_themes(text)["processed_data"]["primary_themes"]]
    history = [e for e in variables.get("history") or [] if isinstance(e, Mapping)]
    patterns = (variables.get("user_context") or {}).get("historical_patterns") or {}
    score = mood["processed_data"]["overall_sentiment"]["score"]
    insights = [
        *_mood_insights(score, history, patterns),
        *_theme_insights(themes, history, patterns),
        *_activity_insights(text, score, history),
    ]
    advice = _recommendations(mood["processed_data"]["emotions"], themes, score)
    insights += [_insight("recommendation", line, 0.5, []) for line in advice]
    known = min(1.0, len(history) / 10)
    return {
        "processed_data": {
            "summary": _summary(mood["processed_data"]["overall_sentiment"]["label"], themes),
            "insights": insights,
            "recommendations": advice,
        },
        "confidence_score": round(mood["confidence_score"] * (0.5 + 0.5 * known), 3),
    }


def _insight(kind: str, text: str, confidence: float, evidence: Sequence[str]) -> dict[str, Any]:
    return {"kind": kind, "text": text, "confidence": round(confidence, 3), "evidence": list(evidence)}


def _words(name: str) -> str:
    return name.replace("_", " ")


def _summary(label: str, themes: Sequence[str]) -> str:
    about = " and ".join(_words(theme) for theme in themes[:2]) or "everyday things"
    return f"A {label} entry about {about}."


def _scores(history: Sequence[Mapping[str, Any]]) -> list[float]:
    return [float(e["sentiment"]) for e in history if isinstance(e.get("sentiment"), int | float)]


def _mood_insights(
    score: float, history: Sequence[Mapping[str, Any]], patterns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    scores = _scores(history)
    found = []
    usual = fmean(scores) if scores else patterns.get("typical_mood")
    if isinstance(usual, int | float) and abs(score - usual) > max(
        0.35, 2 * (pstdev(scores) if len(scores) > 2 else 0)
    ):
        side = "better" if score > usual else "worse"
        text = f"The mood is clearly {side} than usual ({score:+.2f} against {usual:+.2f})."
        found.append(_insight("anomaly", text, min(0.95, 0.4 + len(scores) / 30), []))
    if len(scores) >= RECENT * 2:
        shift = fmean([*scores[-RECENT + 1 :], score]) - fmean(scores[-2 * RECENT : -RECENT])
        if abs(shift) > 0.2:
            way = "rising" if shift > 0 else "falling"
            found.append(_insight("trend", f"Mood has been {way} over the last {RECENT} entries.", 0.6, []))
    return found


def _theme_insights(
    themes: Sequence[str], history: Sequence[Mapping[str, Any]], patterns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    seen = Counter(theme for entry in history for theme in entry.get("themes") or ())
    seen.update(dict.fromkeys(patterns.get("frequent_themes") or (), 2))
    found = []
    for theme in themes[:2]:
        share = seen[theme] / max(1, len(history))
        if seen[theme] >= 3:
            text = f"{_words(theme).capitalize()} comes up again and again ({seen[theme]} earlier entries)."
            found.append(_insight("pattern", text, min(0.9, 0.5 + share / 2), [theme]))
        elif history and not seen[theme]:
            text = f"{_words(theme).capitalize()} is new: no earlier entry is about it."
            found.append(_insight("anomaly", text, min(0.7, 0.2 + len(history) / 50), [theme]))
    return found


def _activity_insights(
    text: Text, score: float, history: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    found = []
    for item in recognise_activities(text)["processed_data"]["activities"][:3]:
        name = item["activity"]
        with_it = _scores([e for e in history if name in (e.get("activities") or ())])
        without = _scores([e for e in history if name not in (e.get("activities") or ())])
        if len(with_it) < 3 or len(without) < 3:
            continue
        lift = fmean([*with_it, score]) - fmean(without)
        if abs(lift) > 0.15:
            side = "better" if lift > 0 else "worse"
            line = f"Entries with {_words(name)} have a {side} mood than the others ({lift:+.2f})."
            found.append(_insight("pattern", line, min(0.9, 0.4 + len(with_it) / 30), [item["evidence"]]))
    return found


def _recommendations(emotions: Mapping[str, float], themes: Sequence[str], score: float) -> list[str]:
    strongest = max(emotions, key=lambda name: emotions[name])
    advice = [ADVICE[strongest]] if strongest in ADVICE and emotions[strongest] > 0.25 else []
    if score < -0.2 and "work_productivity" in themes:
        advice.append("Put one break without a screen into tomorrow's plan.")
    if score < -0.2 and "mental_wellbeing" in themes:
        advice.append("Keep the evening free of appointments and go to bed early.")
    return advice
