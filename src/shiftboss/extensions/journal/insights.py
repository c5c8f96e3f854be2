"""Stage 6, insights: describes the relevant cross-entry findings in words, with their evidence.

Statements are based on tested findings and have their confidence. The AI engine adds insights that compare
the latest entry with the writer's history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from shiftboss.extensions.ai import AI, Need
from shiftboss.extensions.ai.answers import InsightGeneration
from shiftboss.extensions.journal.entry import digest
from shiftboss.extensions.journal.history import History
from shiftboss.extensions.journal.steps import Found, ask

Insight = dict[str, Any]
SURE = 0.9
LIFT = 0.15
LOOK_BACK = 60


def insight(key: str, kind: str, text: str, confidence: float, evidence: list[str]) -> Insight:
    return {"key": key, "kind": kind, "text": text, "confidence": round(confidence, 3), "evidence": evidence}


def mood_trend(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    mood = analysis["mood"]
    if mood["direction"] != "steady":
        text = (
            f"Over the whole time your mood is {mood['direction']}, by {abs(mood['per_month']):.2f} a month."
        )
        yield insight("trend:mood", "trend", text, mood["confidence"], [])


def level_changes(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    """Yield low stretches: as a recovery if they have ended, else as a current low."""
    found = analysis["stretches"]
    for place, low in enumerate(found):
        before = found[place - 1]["mood"] if place else None
        after = found[place + 1]["mood"] if place + 1 < len(found) else None
        if low["confidence"] < SURE or not _is_low(low["mood"], before, after):
            continue
        text = f"From {_day(low['from'])} to {_day(low['to'])} you had a hard time (mood {low['mood']:+.2f}"
        text += f", {before:+.2f} before)." if before is not None else ")."
        text += (
            f" Since then you have recovered to {after:+.2f}."
            if after is not None
            else " It has not ended yet."
        )
        yield insight(f"trend:low:{low['from']}", "trend", text, low["confidence"], low["entries"])


def _is_low(mood: float, before: float | None, after: float | None) -> bool:
    return all(other is None or mood < other - LIFT for other in (before, after)) and (before, after) != (
        None,
        None,
    )


def odd_days(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    """Yield the two best and the two worst days, compared with the usual mood at the time."""
    sides = [
        [odd for odd in analysis["anomalies"] if odd["direction"] == side] for side in ("below", "above")
    ]
    for odd in (*sides[0][:2], *sides[1][:2]):
        side = "better" if odd["direction"] == "above" else "worse"
        text = (
            f"{_day(odd['date'])} stands out: much {side} than usual then "
            f"({odd['mood']:+.2f} against {odd['usual_mood']:+.2f}), with {odd['emotion']} in front."
        )
        yield insight(f"anomaly:{odd['entry']}", "anomaly", text, odd["confidence"], [odd["entry"]])


def seasons(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    for season in _told(analysis["seasonality"]["season"]):
        text = f"Your {season['name']} is {_side(season)} than the rest of the year ({season['mood']:+.2f})."
        yield insight(f"pattern:season:{season['name']}", "pattern", text, season["confidence"], [])


def company(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    for person in _told(analysis["influences"]["people"]):
        text = f"Entries with {person['name']} are {_side(person)} than the others ({_lift(person)})."
        yield insight(f"relationship:{person['name']}", "relationship", text, person["confidence"], [])
    pairs = [edge for edge in analysis["relations"] if edge["kinds"] == ["person", "person"]]
    for pair in pairs[:2]:
        text = f"{pair['a']} and {pair['b']} belong together: {pair['weight']} entries name both."
        confidence = pair["weight"] / (pair["weight"] + 2)
        yield insight(f"relationship:{pair['a']}+{pair['b']}", "relationship", text, confidence, [])


def habits(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    for kind, words in (("places", "in {}"), ("activities", "with {}"), ("themes", "about {}")):
        known = analysis["influences"][kind]
        if kind == "places":  # only proper names: "kitchen" is not a useful insight
            known = [place for place in known if place["name"][:1].isupper()]
        for item in _told(known):
            what = words.format(item["name"].replace("_", " "))
            text = f"Days {what} are {_side(item)} for you than others ({_lift(item)})."
            yield insight(f"pattern:{kind}:{item['name']}", "pattern", text, item["confidence"], [])


def shifts(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    themes = analysis["themes"]
    for way, word in (("rising", "more"), ("falling", "less")):
        for name, change in list(themes[way].items())[:1]:
            text = (
                f"You write {word} about {name.replace('_', ' ')} than before ({change:+.0%} of the entries)."
            )
            confidence = min(0.95, analysis["entries"] / (analysis["entries"] + 20))
            yield insight(f"trend:theme:{name}", "trend", text, confidence, [])


RULES: tuple[Callable[[Mapping[str, Any]], Iterator[Insight]], ...] = (
    mood_trend, level_changes, odd_days, seasons, company, habits, shifts,
)  # fmt: skip


def _told(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the largest items with enough confidence and effect to be reported."""
    kept = [item for item in items if item.get("confidence", 0) >= SURE and abs(item["lift"]) >= LIFT]
    return sorted(kept, key=lambda item: -abs(item["lift"]))[:2]


def _side(item: Mapping[str, Any]) -> str:
    return "brighter" if item["lift"] > 0 else "darker"


def _lift(item: Mapping[str, Any]) -> str:
    return f"{item['lift']:+.2f} in {item['entries']} entries"


def _day(iso: str) -> str:
    day = date.fromisoformat(iso)
    return f"{day.day} {day:%B %Y}"


async def generate(
    history: History, analysis: Mapping[str, Any], user_context: Mapping[str, Any], ai: AI
) -> Found:
    """Return the insights of the rules and of the model; the confidence is their mean."""
    insights = [found for rule in RULES for found in rule(analysis)]
    variables = _variables(history, user_context)
    seen = await ask(ai, "insight_generation", InsightGeneration, Need.ADVANCED, variables)
    insights += [
        {"key": f"ai:{digest(told['text'])[:12]}", "evidence": [history.moments[-1].external_id]}
        | _kept(told)
        for told in seen.processed_data["insights"]
    ]
    data = {
        "summary": seen.processed_data["summary"],
        "insights": insights,
        "recommendations": seen.processed_data["recommendations"],
    }
    confidence = sum(told["confidence"] for told in insights) / len(insights) if insights else 0.0
    return Found(data, confidence, seen.provider, seen.model)


def _kept(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in ("kind", "text", "confidence")}


def _variables(history: History, user_context: Mapping[str, Any]) -> dict[str, Any]:
    *past, latest = history.moments[-LOOK_BACK:]
    told = [
        {
            "date": moment.local_time.date().isoformat(),
            "sentiment": moment.mood,
            "themes": moment.themes,
            "activities": moment.activities,
        }
        for moment in past
    ]
    return {
        "content": latest.text,
        "user_context": dict(user_context),
        "history": told,
        "language": latest.language,
    }
