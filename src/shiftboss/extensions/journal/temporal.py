"""Temporal context: similar periods, trend, anomalies and significant changes of mood."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from shiftboss.extensions.journal.history import History, Moment
from shiftboss.extensions.journal.statistics import confidence_of, difference, robust_z, trend
from shiftboss.extensions.journal.steps import Found

TREND_DAYS = 60
TREND_LEAST = 0.02  # mood per week; smaller slopes are steady
BASELINE = 15  # entries that define the usual mood
ANOMALY_Z = 2.0
ANOMALY_LEAST = 0.35  # minimum difference in mood, so that a calm diary has no anomalies
LEAST_HISTORY = 6
LONGEST = 400  # earlier entries that are compared
RECENT = 5


def temporal_context(history: History, evidence: Callable[[int], float]) -> Iterator[Found]:
    """Yield the comparison of each mood with earlier ones.

    The confidence grows with the number of earlier entries and the confidence in the mood.
    """
    for place, moment in enumerate(history.moments):
        past = history.moments[max(0, place - LONGEST) : place]
        data = {
            "local_time": _clock(moment),
            "mood": moment.mood,
            "similar_periods": similar_periods(moment, past),
            "trend": recent_trend([*past, moment]),
            "anomaly": anomaly(moment, past),
            "significant_change": significant_change([*past[-30:], moment]),
        }
        yield Found(data, evidence(place) * (0.5 + 0.5 * moment.mood_confidence))


def _clock(moment: Moment) -> dict[str, Any]:
    return {
        "date": moment.local_time.date().isoformat(),
        "weekday": moment.weekday,
        "part_of_day": moment.part_of_day,
        "season": moment.season,
    }


def similar_periods(moment: Moment, past: Sequence[Moment]) -> dict[str, Any]:
    """Return the earlier mood on the same weekday, time of day, month and season."""
    alike: dict[str, Callable[[Moment], Any]] = {
        "weekday": lambda m: m.weekday,
        "part_of_day": lambda m: m.part_of_day,
        "month": lambda m: m.local_time.month,
        "season": lambda m: m.season,
        "last_year": lambda m: abs(moment.day - m.day - 365) <= 21 or None,
    }
    found: dict[str, Any] = {}
    for name, key in alike.items():
        wanted = True if name == "last_year" else key(moment)
        group = [other for other in past if key(other) == wanted]
        if group:
            mean = round(fmean(other.mood for other in group), 3)
            latest = [other.external_id for other in group[-3:]]
            found[name] = {"value": wanted, "entries": len(group), "mood": mean, "latest": latest}
    return found


def recent_trend(moments: Sequence[Moment]) -> dict[str, Any]:
    last = moments[-1].day
    window = [moment for moment in moments[-60:] if last - moment.day <= TREND_DAYS]
    line = trend([moment.day / 7 for moment in window], [moment.mood for moment in window])
    return {
        "days": TREND_DAYS,
        "entries": len(window),
        "mood_per_week": round(line.slope, 4),
        "direction": line.direction(TREND_LEAST),
        "confidence": round(line.confidence, 3),
    }


def anomaly(moment: Moment, past: Sequence[Moment]) -> dict[str, Any]:
    """Return whether the mood is far from that of previous entries, by median and median deviation."""
    usual = [other.mood for other in past[-BASELINE:]]
    if len(usual) < LEAST_HISTORY:
        return {"is_anomaly": False, "reason": "too few earlier entries"}
    z = robust_z(moment.mood, usual)
    gap = abs(moment.mood - fmean(usual))
    return {
        "is_anomaly": abs(z) >= ANOMALY_Z and gap >= ANOMALY_LEAST,
        "robust_z": round(z, 2),
        "usual_mood": round(fmean(usual), 3),
        "direction": "above" if z > 0 else "below",
        "confidence": round(confidence_of(z), 3),
    }


def significant_change(moments: Sequence[Moment]) -> dict[str, Any]:
    """Return whether the mood of the last few entries differs from the earlier ones."""
    recent, before = moments[-RECENT:], moments[:-RECENT]
    if len(before) < LEAST_HISTORY:
        return {"changed": False, "reason": "too few earlier entries"}
    gap = difference([m.mood for m in recent], [m.mood for m in before])
    return {
        "changed": gap.confidence >= 0.95 and abs(gap.effect) >= ANOMALY_LEAST / 2,
        "since": recent[0].local_time.date().isoformat(),
        "difference": round(gap.effect, 3),
        "confidence": round(gap.confidence, 3),
    }
