"""Stage 5, cross-entry analysis: findings over all entries of a writer."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from shiftboss.extensions.journal.history import History, Moment
from shiftboss.extensions.journal.progress import progress, streaks
from shiftboss.extensions.journal.statistics import (
    confidence_of,
    deviations,
    difference,
    least_confidence,
    segments,
    trend,
)
from shiftboss.extensions.journal.steps import Found
from shiftboss.extensions.journal.temporal import ANOMALY_LEAST, TREND_LEAST

LEAST_ENTRIES = 3  # with and without a name, before its influence on the mood is computed
MOST = 12
ENOUGH = 20
SHOWN = 20  # entries that a finding leads to, the latest ones
NEAR = 3  # entries before and after a day that it is compared with
ODD_A_YEAR = 0.5  # days that may be told by chance in a year
ODD_CHANCE = 0.03  # of one day at most, for those who write seldom
LONGEST = 1000  # entries that are searched for stretches, since the search is quadratic


def analyse(history: History, relations: Sequence[Mapping[str, Any]]) -> Found:
    """Return mood, seasons, anomalies, themes and relations; the confidence is 0.5 at twenty entries."""
    moments = history.moments
    seasons, found = seasonality(moments), influences(moments)
    _mark_discoveries([group for kind in (seasons | found).values() for group in kind])
    data = {
        "entries": len(moments),
        "mood": mood_overview(moments),
        "stretches": stretches(moments),
        "anomalies": anomalies(moments),
        "seasonality": seasons,
        "themes": themes(moments),
        "influences": found,
        "progress": progress(moments),
        "streaks": streaks(moments),
        "relations": bonds(relations, moments),
    }
    return Found(data, len(moments) / (len(moments) + ENOUGH))


def mood_overview(moments: Sequence[Moment]) -> dict[str, Any]:
    line = trend([moment.day / 30.4 for moment in moments], [moment.mood for moment in moments])
    months: dict[str, list[float]] = defaultdict(list)
    for moment in moments:
        months[moment.local_time.strftime("%Y-%m")].append(moment.mood)
    return {
        "mean": _mean(moment.mood for moment in moments),
        "entries": [moment.external_id for moment in (*moments[:SHOWN], *moments[SHOWN:][-SHOWN:])],
        "by_month": {month: _mean(moods) for month, moods in months.items()},
        "per_month": round(line.slope, 4),
        "direction": line.direction(TREND_LEAST / 2),
        "confidence": round(line.confidence, 3),
    }


def stretches(moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """Split the time where the level of the mood changed clearly."""
    moments = moments[-LONGEST:]
    pieces = [
        moments[part.start : part.stop] for part in segments([moment.mood for moment in moments]) if part
    ]
    return [
        {
            "from": piece[0].local_time.date().isoformat(),
            "to": piece[-1].local_time.date().isoformat(),
            "entries": [moment.external_id for moment in piece],
            "mood": _mean(moment.mood for moment in piece),
            "confidence": round(_distinct(piece, moments), 3),
        }
        for piece in pieces
    ]


def _distinct(piece: Sequence[Moment], moments: Sequence[Moment]) -> float:
    inside = {moment.id for moment in piece}
    rest = [moment.mood for moment in moments if moment.id not in inside]
    return difference([moment.mood for moment in piece], rest).confidence


def anomalies(moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """Days far from the entries around them, by the spread of all such differences; the furthest first.

    How unlikely a day must be depends on how often the writer writes: one in two years is told by chance.
    """
    if len(moments) <= NEAR:
        return []
    gaps = [moment.mood - median(_around(moments, place)) for place, moment in enumerate(moments)]
    years = (moments[-1].day - moments[0].day + 1) / 365
    chance = min(ODD_CHANCE, ODD_A_YEAR * max(years, 1 / 12) / len(moments))
    found = [
        {
            "entry": moment.external_id,
            "date": moment.local_time.date().isoformat(),
            "mood": moment.mood,
            "emotion": moment.dominant_emotion,
            "usual_mood": round(moment.mood - gap, 3),
            "direction": "above" if gap > 0 else "below",
            "robust_z": round(z, 2),
            "confidence": round(confidence_of(z), 3),
        }
        for moment, gap, z in zip(moments, gaps, deviations(gaps), strict=True)
        if abs(gap) >= ANOMALY_LEAST and 1 - confidence_of(z) <= chance
    ]
    return sorted(found, key=lambda odd: -abs(odd["robust_z"]))


def _around(moments: Sequence[Moment], place: int) -> list[float]:
    near = [*moments[max(0, place - NEAR) : place], *moments[place + 1 : place + 1 + NEAR]]
    return [moment.mood for moment in near]


def seasonality(moments: Sequence[Moment]) -> dict[str, Any]:
    return {
        "season": _groups(moments, lambda moment: [moment.season]),
        "weekday": _groups(moments, lambda moment: [moment.weekday]),
        "part_of_day": _groups(moments, lambda moment: [moment.part_of_day]),
    }


def influences(moments: Sequence[Moment]) -> dict[str, Any]:
    """Return the difference in mood between entries with and without each person, place and activity."""

    def names(kind: str) -> Callable[[Moment], list[str]]:
        return lambda moment: [mention.name for mention in moment.mentions if mention.kind == kind]

    return {
        "people": _groups(moments, names("person")),
        "places": _groups(moments, names("place")),
        "activities": _groups(moments, lambda moment: moment.activities),
        "themes": _groups(moments, lambda moment: moment.themes),
    }


def _groups(moments: Sequence[Moment], names: Callable[[Moment], list[str]]) -> list[dict[str, Any]]:
    members: dict[str, list[Moment]] = defaultdict(list)
    for moment in moments:
        for name in dict.fromkeys(names(moment)):
            members[name].append(moment)
    found = [_group(name, group, moments) for name, group in members.items()]
    return sorted(found, key=lambda group: (-group["entries"], group["name"]))[:MOST]


def _group(name: str, group: Sequence[Moment], moments: Sequence[Moment]) -> dict[str, Any]:
    inside = {moment.id for moment in group}
    rest = [moment.mood for moment in moments if moment.id not in inside]
    told: dict[str, Any] = {
        "name": name,
        "entries": len(group),
        "mood": _mean(moment.mood for moment in group),
        "in": [moment.external_id for moment in group[-SHOWN:]],
    }
    if min(len(group), len(rest)) < LEAST_ENTRIES:
        return told
    gap = difference([moment.mood for moment in group], rest)
    span = {"first": group[0].local_time.date().isoformat(), "last": group[-1].local_time.date().isoformat()}
    return told | span | {"lift": round(gap.effect, 3), "confidence": round(gap.confidence, 3)}


def _mark_discoveries(groups: Sequence[dict[str, Any]]) -> None:
    """Among so many people, places and weekdays some differ by accident: mark those that do not."""
    tested = [group for group in groups if "confidence" in group]
    least = least_confidence([group["confidence"] for group in tested])
    for group in tested:
        group["significant"] = group["confidence"] >= least


def themes(moments: Sequence[Moment]) -> dict[str, Any]:
    """Return the most frequent themes, and those whose share changed most in the second half of the time."""
    middle = (moments[0].day + moments[-1].day) / 2
    early = [moment for moment in moments if moment.day <= middle]
    late = [moment for moment in moments if moment.day > middle]
    share = [_shares(early), _shares(late)]
    shift = {name: round(share[1][name] - share[0][name], 3) for name in share[0] | share[1]}
    counts = Counter(theme for moment in moments for theme in moment.themes)
    return {
        "frequent": dict(counts.most_common(MOST)),
        "rising": _ranked(shift, -1),
        "falling": _ranked(shift, 1),
    }


def _shares(moments: Sequence[Moment]) -> Counter[str]:
    counts = Counter(theme for moment in moments for theme in moment.themes)
    shares: Counter[str] = Counter()
    for name, count in counts.items():
        shares[name] = count / len(moments)  # type: ignore[assignment]  # a Counter of floats: 0 if absent
    return shares


def _ranked(shift: Mapping[str, float], sign: int) -> dict[str, float]:
    ranked = sorted(shift.items(), key=lambda item: (sign * item[1], item[0]))[:3]
    return {name: change for name, change in ranked if sign * change < -0.1}


def bonds(relations: Sequence[Mapping[str, Any]], moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """Return the strongest relations, relative to how often each name occurs."""
    counts = Counter(mention.name for moment in moments for mention in moment.mentions)
    found = [_bond(relation, counts, moments) for relation in relations if relation["weight"] > 1]
    return sorted(found, key=lambda bond: -bond["weight"] * bond["strength"])[:MOST]


def _bond(
    relation: Mapping[str, Any], counts: Mapping[str, int], moments: Sequence[Moment]
) -> dict[str, Any]:
    a, b = relation["name"], relation["other_name"]
    both = [moment for moment in moments if {a, b} <= {mention.name for mention in moment.mentions}]
    together = relation["weight"]
    return {
        "a": a,
        "b": b,
        "kinds": [relation["kind"], relation["other_kind"]],
        "weight": together,
        "strength": round(together / math.sqrt(max(1, counts[a]) * max(1, counts[b])), 3),
        "mood": round(relation["mood"], 3),
        "evolution": relation["evolution"],
        "in": [moment.external_id for moment in both[-SHOWN:]],
    }


def _mean(values: Iterable[float]) -> float:
    return round(fmean(values), 3)
