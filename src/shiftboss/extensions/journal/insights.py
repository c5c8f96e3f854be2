"""Stage 6, insights: describes the relevant cross-entry findings in words, with their evidence.

Statements are based on tested findings and have their confidence. The AI engine adds insights that compare
the latest entry with the writer's history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from itertools import pairwise
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
        yield insight("trend:mood", "trend", text, mood["confidence"], mood["entries"])


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
        yield insight(f"pattern:season:{season['name']}", "pattern", text, season["confidence"], season["in"])


def company(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    for person in _told(analysis["influences"]["people"]):
        text = f"Entries with {person['name']} are {_side(person)} than the others ({_lift(person)})."
        yield insight(
            f"relationship:{person['name']}", "relationship", text, person["confidence"], person["in"]
        )
    pairs = [edge for edge in analysis["relations"] if edge["kinds"] == ["person", "person"]]
    for pair in pairs[:2]:
        text = f"{pair['a']} and {pair['b']} belong together: {pair['weight']} entries name both."
        confidence = pair["weight"] / (pair["weight"] + 2)
        yield insight(f"relationship:{pair['a']}+{pair['b']}", "relationship", text, confidence, pair["in"])


def habits(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    for kind, words in (("places", "in {}"), ("activities", "with {}"), ("themes", "about {}")):
        known = analysis["influences"][kind]
        if kind == "places":  # only proper names: "kitchen" is not a useful insight
            known = [place for place in known if place["name"][:1].isupper()]
        for item in _told(known):
            what = words.format(item["name"].replace("_", " "))
            text = f"Days {what} are {_side(item)} for you than others ({_lift(item)})."
            yield insight(f"pattern:{kind}:{item['name']}", "pattern", text, item["confidence"], item["in"])


def shifts(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    themes = analysis["themes"]
    for way, word in (("rising", "more"), ("falling", "less")):
        for name, change in list(themes[way].items())[:1]:
            text = (
                f"You write {word} about {name.replace('_', ' ')} than before ({change:+.0%} of the entries)."
            )
            confidence = min(0.95, analysis["entries"] / (analysis["entries"] + 20))
            told: list[str] = next(
                (group["in"] for group in analysis["influences"]["themes"] if group["name"] == name), []
            )
            yield insight(f"trend:theme:{name}", "trend", text, confidence, told)


def weekdays(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    for day in _told(analysis["seasonality"]["weekday"]):
        text = f"Your {day['name'].capitalize()}s are {_side(day)} than the other days ({_lift(day)})."
        yield insight(f"pattern:weekday:{day['name']}", "pattern", text, day["confidence"], day["in"])


def turning_points(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    """Where a new level of the mood began."""
    for before, after in pairwise(analysis["stretches"]):
        gap = after["mood"] - before["mood"]
        sure = min(before["confidence"], after["confidence"])
        if sure < SURE or abs(gap) < LIFT:
            continue
        text = (
            f"{_day(after['from'])} was a turning point for the {'better' if gap > 0 else 'worse'}: "
            f"your mood went from {before['mood']:+.2f} to {after['mood']:+.2f}."
        )
        told = [*before["entries"][-3:], *after["entries"][:3]]
        yield insight(f"trend:turn:{after['from']}", "trend", text, sure, told)


def advances(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    for change in analysis["progress"]:
        way = "went up" if change["direction"] == "rising" else "went down"
        text = (
            f"Your {change['unit']} {way} from {change['first']:g} to {change['last']:g} "
            f"in {len(change['entries'])} entries."
        )
        key = f"trend:progress:{change['unit']}"
        yield insight(key, "trend", text, change["confidence"], change["entries"])


def runs(analysis: Mapping[str, Any]) -> Iterator[Insight]:
    for streak in analysis["streaks"]:
        what = streak["name"].replace("_", " ").capitalize()
        text = f"{what} on {streak['days']} days in a row, {_day(streak['from'])} to {_day(streak['to'])}."
        yield insight(f"pattern:streak:{streak['name']}", "pattern", text, SURE, streak["entries"])


def recommend(analysis: Mapping[str, Any]) -> list[str]:
    """What the writer's own entries suggest: more of what goes with good days, care for the bad ones."""
    known = analysis["influences"]
    good = [
        (item, words.format(item["name"].replace("_", " ")))
        for kind, words in (("activities", "{}"), ("people", "time with {}"), ("places", "a day in {}"))
        for item in _told(known[kind])
        if item["lift"] > 0
    ]
    advice = [
        f"Plan {words} this week: your mood is {item['lift']:+.2f} in those {item['entries']} entries."
        for item, words in good[:2]
    ]
    for day in _told(analysis["seasonality"]["weekday"]):
        if day["lift"] < 0:
            help_ = f", for instance {good[0][1]}" if good else ""
            advice.append(f"{day['name'].capitalize()}s are hard for you: plan something good{help_}.")
    return advice


RULES: tuple[Callable[[Mapping[str, Any]], Iterator[Insight]], ...] = (
    mood_trend, level_changes, turning_points, odd_days, weekdays, seasons, company, habits, advances, runs,
    shifts,
)  # fmt: skip


def _told(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the largest items that are significant and have enough effect to be reported."""
    kept = [item for item in items if item.get("significant") and abs(item["lift"]) >= LIFT]
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
        "recommendations": recommend(analysis) or seen.processed_data["recommendations"],
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
