"""Statistics for the journal, robust against single outliers where that matters.

Each `confidence` is one minus the probability that the finding is due to chance (a normal approximation).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median, variance

MOST_POINTS = 1000  # since all pairs are compared
SPREAD_FLOOR = 0.1  # so that small changes of a constant mood are not anomalies


def confidence_of(z: float) -> float:
    """Return one minus the two-sided p-value of the z-score."""
    return math.erf(abs(z) / math.sqrt(2))


def robust_z(value: float, others: Sequence[float]) -> float:
    """Return the distance of the value from the median of the others, in robust standard deviations."""
    middle = median(others)
    deviation = median(abs(other - middle) for other in others)
    return (value - middle) / max(SPREAD_FLOOR, 1.4826 * deviation)


def deviations(values: Sequence[float]) -> list[float]:
    """Return for each value its distance from the mean of the others, in their standard deviations.

    Each as a standard normal value. Few values give none: at least six are needed.
    """
    others, total, squares = len(values) - 1, sum(values), sum(value * value for value in values)
    if others < 5:
        return [0.0] * len(values)
    found = []
    for value in values:
        mean = (total - value) / others
        spread = max(0.0, squares - value * value - others * mean * mean) / (others - 1)
        found.append(_normal((value - mean) / max(SPREAD_FLOOR, spread**0.5), others - 1))
    return found


@dataclass(frozen=True, slots=True)
class Trend:
    slope: float  # per unit of x
    confidence: float

    def direction(self, least: float) -> str:
        if self.confidence < 0.9 or abs(self.slope) < least:
            return "steady"
        return "rising" if self.slope > 0 else "falling"


def trend(x: Sequence[float], y: Sequence[float]) -> Trend:
    """Return the Theil–Sen slope, tested by Kendall's tau. Long series are sampled."""
    step = -(-len(x) // MOST_POINTS) or 1
    x, y = x[::step], y[::step]
    pairs = [(x[j] - x[i], y[j] - y[i]) for i in range(len(x)) for j in range(i + 1, len(x)) if x[j] > x[i]]
    if len(x) < 3 or not pairs:
        return Trend(0.0, 0.0)
    score = sum((dy > 0) - (dy < 0) for _, dy in pairs)
    n = len(x)
    z = score / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return Trend(median(dy / dx for dx, dy in pairs), confidence_of(z))


@dataclass(frozen=True, slots=True)
class Difference:
    effect: float  # mean of the first group minus mean of the second
    confidence: float


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference of means by Welch's test; it is zero for groups of fewer than two."""
    if len(first) < 2 or len(second) < 2:
        return Difference(0.0, 0.0)
    effect = fmean(first) - fmean(second)
    parts = [max(variance(group), SPREAD_FLOOR**2) / len(group) for group in (first, second)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(group) - 1) for part, group in zip(parts, (first, second), strict=True)
    )
    return Difference(effect, confidence_of(_normal(effect / math.sqrt(sum(parts)), freedom)))


def _normal(t: float, freedom: float) -> float:
    """The standard normal value that is about as unlikely as Student's t."""
    return t * (1 - 1 / (4 * freedom)) / math.sqrt(1 + t * t / (2 * freedom))


def least_confidence(confidences: Sequence[float], rate: float = 0.1) -> float:
    """The confidence from which at most the share `rate` of the findings is an accident (Benjamini–Hochberg).

    More than 1 where none is sure enough: the more is looked at, the surer a finding must be.
    """
    chances = sorted(1 - confidence for confidence in confidences)
    allowed = [chance for place, chance in enumerate(chances, 1) if chance <= rate * place / len(chances)]
    return 1 - allowed[-1] if allowed else 2.0


def segments(values: Sequence[float], *, shortest: int = 4, penalty: float = 3.0) -> list[range]:
    """Split the series where its level changes, by least squares with a penalty per segment.

    With this penalty, forty values of noise are split in one of thirty cases, and a dip of four times the
    noise is found.
    """
    n = len(values)
    if n < 2 * shortest:
        return [range(n)]
    price = penalty * math.log(n) * _noise(values)
    sums, squares = _running(values), _running([value * value for value in values])
    best, cut = [0.0] + [math.inf] * n, [0] * (n + 1)
    for end in range(shortest, n + 1):
        for start in range(end - shortest + 1):
            total = sums[end] - sums[start]
            cost = best[start] + squares[end] - squares[start] - total * total / (end - start) + price
            if cost < best[end]:
                best[end], cut[end] = cost, start
    return _pieces(cut)


def _noise(values: Sequence[float]) -> float:
    """Return the variance between neighbouring values, which changes of level hardly affect."""
    return max(SPREAD_FLOOR**2, fmean((b - a) ** 2 for a, b in pairwise(values)) / 2)


def _running(values: Sequence[float]) -> list[float]:
    return [0.0, *accumulate(values)]


def _pieces(cut: Sequence[int]) -> list[range]:
    pieces, end = [], len(cut) - 1
    while end > 0:
        pieces.append(range(cut[end], end))
        end = cut[end]
    return pieces[::-1]
