"""Insights: planted patterns are found, noise is not, and each insight refers to entries."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from shiftboss.extensions.journal.cross_entry import analyse
from shiftboss.extensions.journal.history import History, Mention, Moment
from shiftboss.extensions.journal.insights import RULES, recommend
from shiftboss.extensions.journal.progress import numbers
from shiftboss.extensions.journal.statistics import least_confidence

MONDAY = datetime(2025, 3, 3, 19, tzinfo=UTC)


def moment(day: int, mood: float, text: str = "x", activities: tuple[str, ...] = (), who: str = "") -> Moment:
    return Moment(
        id=UUID(int=day),
        external_id=f"day {day}",
        revision=1,
        local_time=MONDAY + timedelta(days=day),
        timezone="UTC",
        language="en",
        location=None,
        text=text,
        mood=mood,
        mood_confidence=0.8,
        emotions={"joy": 0.1},
        themes=[],
        activities=list(activities),
        entities=[],
        hashes={},
        mentions=[Mention("person", who, 0.9)] if who else [],
    )


def found(moments: list[Moment]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    analysis = dict(analyse(History("me", {}, moments), []).processed_data)
    return analysis, {told["key"]: told for rule in RULES for told in rule(analysis)}


def noise(seed: int, days: int = 90) -> list[float]:
    draw = random.Random(seed)
    return [max(-1.0, min(1.0, draw.gauss(0.2, 0.25))) for _ in range(days)]


def test_sad_sundays_are_told_with_their_entries() -> None:
    moods = noise(1, 63)
    _, told = found([moment(day, -0.8 if day % 7 == 6 else mood) for day, mood in enumerate(moods)])
    sunday = told["pattern:weekday:sunday"]
    assert "Sundays are darker" in sunday["text"]
    assert sunday["evidence"] == [f"day {day}" for day in range(6, 63, 7)]


def test_a_person_and_an_activity_that_go_with_good_days() -> None:
    moments = [
        moment(day, 0.8, activities=("walking",), who="Ida") if day % 5 == 0 else moment(day, mood - 0.3)
        for day, mood in enumerate(noise(2))
    ]
    analysis, told = found(moments)
    assert told["relationship:Ida"]["evidence"]
    assert "brighter" in told["pattern:activities:walking"]["text"]
    assert recommend(analysis)[0].startswith("Plan walking this week")


def test_a_rising_distance_is_progress() -> None:
    moments = [moment(day * 4, 0.3, f"Ran {3 + day} km today.") for day in range(18)]
    _, told = found(moments)
    assert told["trend:progress:kilometres"]["text"] == "Your kilometres went up from 3 to 20 in 18 entries."


def test_distances_that_only_vary_are_no_progress() -> None:
    draw = random.Random(3)
    _, told = found([moment(day, 0.3, f"Ran {draw.randint(3, 12)} km today.") for day in range(40)])
    assert not [key for key in told if key.startswith("trend:progress")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Heute 7,5 Kilometer in 40 Minuten", [("kilometres", 7.5), ("minutes", 40.0)]),
        ("corri 10 quilómetros e 12.000 passos", [("kilometres", 10.0), ("steps", 12000.0)]),
        ("leí 30 páginas en 2 horas", [("pages", 30.0), ("hours", 2.0)]),
        ("room 12, bus 5, on 3.4.2025", []),
    ],
)
def test_numbers_with_units_are_read(text: str, wanted: list[tuple[str, float]]) -> None:
    assert list(numbers(text)) == wanted


def test_days_in_a_row_are_a_streak() -> None:
    moments = [moment(day, 0.1, activities=("reading",) if 10 <= day < 19 else ()) for day in range(30)]
    _, told = found(moments)
    streak = told["pattern:streak:reading"]
    assert "9 days in a row" in streak["text"]
    assert len(streak["evidence"]) == 9


def test_a_new_level_is_a_turning_point() -> None:
    moods = noise(4, 60)
    _, told = found([moment(day, mood - (0.8 if day >= 30 else 0)) for day, mood in enumerate(moods)])
    assert "for the worse" in told[f"trend:turn:{(MONDAY + timedelta(days=30)).date()}"]["text"]


@pytest.mark.parametrize("every", [1, 7, 10])
def test_a_planted_day_is_found_and_hardly_another(every: int) -> None:
    """Writers of every day, week and ten days: at most one day a year is told by chance."""
    entries = 364 // every
    hits = others = 0
    for seed in range(20):
        moods = noise(seed, entries)
        moods[entries // 2] = -1.0
        analysis, _ = found([moment(place * every, mood) for place, mood in enumerate(moods)])
        odd = {one["entry"] for one in analysis["anomalies"]}
        hits += f"day {entries // 2 * every}" in odd
        others += len(odd - {f"day {entries // 2 * every}"})
    assert hits >= 19
    assert others <= 20


def test_a_journal_of_good_and_bad_days_has_no_odd_ones() -> None:
    """Where a third of the days is bad, a bad day is nothing odd."""
    others = 0
    for seed in range(20):
        draw = random.Random(seed)
        moods = [0.8 if draw.random() < 0.7 else -0.8 for _ in range(52)]
        others += len(found([moment(7 * week, mood) for week, mood in enumerate(moods)])[0]["anomalies"])
    assert others <= 10


def test_noise_has_hardly_a_pattern() -> None:
    """Twelve people, four activities and seven weekdays by chance: few of twenty journals may tell one."""
    wrong = 0
    for seed in range(20):
        draw = random.Random(seed + 100)
        moments = [
            moment(day, mood, activities=(draw.choice("abcd"),), who=f"P{draw.randint(1, 12)}")
            for day, mood in enumerate(noise(seed))
        ]
        _, told = found(moments)
        wrong += any(key.startswith(("pattern:weekday", "pattern:act", "relationship:P")) for key in told)
    assert wrong <= 4


def test_every_insight_leads_to_entries() -> None:
    moods = noise(5)
    moments = [
        moment(day, mood - (0.7 if day % 7 == 6 else 0), f"{day + 1} km", ("exercising",), "Ida")
        for day, mood in enumerate(moods)
    ]
    _, told = found(moments)
    assert len(told) >= 3
    assert all(each["evidence"] for each in told.values())


def test_the_more_is_looked_at_the_surer_it_must_be() -> None:
    assert least_confidence([0.95]) == pytest.approx(0.95)
    assert least_confidence([0.95, *([0.1] * 19)]) > 1
    assert least_confidence([0.999, 0.998, *([0.1] * 18)]) == pytest.approx(0.998)
