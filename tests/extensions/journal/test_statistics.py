"""The statistics find real effects and report nothing for noise."""

from __future__ import annotations

import random
import time

import pytest

from shiftboss.extensions.journal.statistics import confidence_of, difference, robust_z, segments, trend


def noise(count: int, seed: int, level: float = 0.0) -> list[float]:
    draw = random.Random(seed)
    return [level + draw.gauss(0, 0.15) for _ in range(count)]


def test_a_low_stretch_in_the_middle_is_cut_out() -> None:
    values = noise(12, 1, 0.3) + noise(9, 2, -0.5) + noise(12, 3, 0.3)
    assert [(part.start, part.stop) for part in segments(values)] == [(0, 12), (12, 21), (21, 33)]


@pytest.mark.parametrize("seed", range(6))
def test_noise_is_one_stretch(seed: int) -> None:
    assert len(segments(noise(40, seed))) == 1


def test_too_few_values_are_one_stretch() -> None:
    assert segments([0.5, -0.5, 0.5]) == [range(3)]
    assert segments([]) == [range(0)]


def test_a_trend_is_told_from_none() -> None:
    x = [float(i) for i in range(30)]
    rising = trend(x, [0.02 * i + n for i, n in zip(x, noise(30, 4), strict=True)])
    assert rising.direction(0.01) == "rising"
    assert rising.slope == pytest.approx(0.02, abs=0.01)
    assert trend(x, noise(30, 5)).direction(0.01) == "steady"
    assert trend([1.0], [1.0]).direction(0.01) == "steady"


def test_one_odd_day_does_not_hide_another() -> None:
    usual = [0.3, 0.2, 0.35, 0.25, 0.3, -0.9, 0.28]
    assert robust_z(-0.8, usual) < -5
    assert abs(robust_z(0.3, usual)) < 1


def test_confidence_is_one_minus_the_chance_of_an_accident() -> None:
    assert confidence_of(1.96) == pytest.approx(0.95, abs=0.001)
    assert difference([0.5, 0.6, 0.55], [-0.5, -0.4, -0.6]).confidence > 0.99
    assert difference(noise(20, 6), noise(20, 7)).confidence < 0.95
    assert difference([1.0], [2.0, 3.0]).confidence == 0


def test_the_trend_of_a_long_life_is_soon_found() -> None:
    x = [float(i) for i in range(20_000)]
    started = time.process_time()
    found = trend(x, [0.001 * i + n for i, n in zip(x, noise(20_000, 8), strict=True)])
    assert found.slope == pytest.approx(0.001, abs=1e-5)
    assert time.process_time() - started < 5
