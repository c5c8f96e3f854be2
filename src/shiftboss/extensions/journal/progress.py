"""Progress and streaks: numbers that rise or fall over the entries, and what was done day after day."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from shiftboss.extensions.journal.history import Moment
from shiftboss.extensions.journal.statistics import trend

UNITS = {
    "kilometres": r"km|kilomet\w+|quil[óô]metr\w+|kilómetr\w+",
    "kilograms": r"kg|kilos?|kilogra\w+|quilos?",
    "minutes": r"min|minut\w+",
    "hours": r"hours?|stunden?|horas?",
    "pages": r"pages?|seiten?|páginas?",
    "words": r"words|wörter|palavras|palabras",
    "steps": r"steps|schritte|passos|pasos",
    "lengths": r"lengths|laps|bahnen|piscinas|largos",
    "push-ups": r"push-?ups|liegestütze?|flexões|flexiones",
}
NUMBER = re.compile(
    r"(?<![\w.,])(\d{1,3}(?:[.,]\d{3})+|\d+(?:[.,]\d{1,2})?)\s?-?(?:"
    + "|".join(f"({pattern})" for pattern in UNITS.values())
    + r")(?!\w)",
    re.IGNORECASE,
)
LEAST_NUMBERS = 5  # entries that name the unit
LEAST_STREAK = 5  # days
LEAST_CHANGE = 0.25  # of the first third's median
SURE = 0.95
MOST = 3


def numbers(text: str) -> Iterator[tuple[str, float]]:
    """Each number that stands before a unit."""
    for match in NUMBER.finditer(text):
        unit = list(UNITS)[next(place for place, found in enumerate(match.groups()[1:]) if found)]
        yield unit, _value(match.group(1))


def _value(written: str) -> float:
    if re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+", written):
        return float(re.sub(r"[.,]", "", written))
    return float(written.replace(",", "."))


def progress(moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """Units whose largest number per entry rises or falls, surest first."""
    series: dict[str, list[tuple[Moment, float]]] = defaultdict(list)
    for moment in moments:
        largest: dict[str, float] = {}
        for unit, value in numbers(moment.text):
            largest[unit] = max(value, largest.get(unit, value))
        for unit, value in largest.items():
            series[unit].append((moment, value))
    found = [_change(unit, points) for unit, points in series.items() if len(points) >= LEAST_NUMBERS]
    sure = [change for change in found if change["confidence"] >= SURE and _large(change)]
    return sorted(sure, key=lambda change: -change["confidence"])[:MOST]


def _change(unit: str, points: Sequence[tuple[Moment, float]]) -> dict[str, Any]:
    line = trend([moment.day for moment, _ in points], [value for _, value in points])
    third = max(1, len(points) // 3)
    values = [value for _, value in points]
    return {
        "unit": unit,
        "direction": "rising" if line.slope > 0 else "falling",
        "first": values[0],
        "last": values[-1],
        "early": median(values[:third]),
        "late": median(values[-third:]),
        "entries": [moment.external_id for moment, _ in points],
        "confidence": round(line.confidence, 3),
    }


def _large(change: dict[str, Any]) -> bool:
    return bool(abs(change["late"] - change["early"]) >= LEAST_CHANGE * abs(change["early"]))


def streaks(moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """The longest run of days in a row for each activity, longest first."""
    days: dict[str, dict[int, Moment]] = defaultdict(dict)
    for moment in moments:
        for name in moment.activities:
            days[name][moment.day] = moment
    found: list[dict[str, Any]] = []
    for name, by_day in days.items():
        run = _longest(sorted(by_day))
        if len(run) >= LEAST_STREAK:
            ends = [by_day[day].local_time.date().isoformat() for day in (run[0], run[-1])]
            entries = [by_day[day].external_id for day in run]
            found.append({"name": name, "days": len(run), "from": ends[0], "to": ends[1], "entries": entries})
    return sorted(found, key=lambda streak: (-streak["days"], streak["name"]))[:MOST]


def _longest(days: Sequence[int]) -> list[int]:
    runs = [[days[0]]]
    for before, day in pairwise(days):
        if day == before + 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return max(runs, key=len)
