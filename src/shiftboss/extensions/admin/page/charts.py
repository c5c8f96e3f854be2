"""Compute the geometry of charts: points, labels and tooltips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from shiftboss.extensions.admin.page.words import count

Tell = Callable[[float], str]
WIDTH, HEIGHT = 600, 120  # SVG units; the style sheet sets the size on the page
SPARK_WIDTH, SPARK_HEIGHT = 100, 20
SHORTEST = 24  # the stroke of a single point
Point = tuple[float, float]


class ChartLine(NamedTuple):
    """One series, where None is a gap. `tone` is a class of the style sheet."""

    name: str
    values: Sequence[float | None]
    tone: str = "s1"
    area: bool = False


def figure(value: float) -> str:
    """Return a number with at most four digits after the point, and none if it is large."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def chart(
    lines: Sequence[ChartLine],
    labels: Sequence[str],
    *,
    title: str,
    tell: Tell = figure,
    low: float = 0.0,
    none: str = "No data in this period",
    axis: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return lines over a common axis with round numbers, for `ui.chart`.

    `labels` name the points in the tooltips, and on the axis as well unless `axis` has shorter ones.
    """
    high = round_up(max((v for line in lines for v in line.values if v is not None), default=0.0))
    low, scale = min(low, 0.0), (min(low, 0.0), high)
    steps = [high, (low + high) / 2, low]
    known = [line for line in lines if any(line.values)]  # a line of zeros would hide the axis
    told = ", ".join(f"{line.name} {_last(line, tell)}" for line in lines)
    return {
        "title": title,
        "width": WIDTH,
        "height": HEIGHT,
        "told": f"{title}; latest: {told}" if known else f"{title}; nothing yet",
        "nothing": "" if known else none,
        "steps": [tell(value) if value else "0" for value in steps],
        "rules": [f"{_y(value, scale):.1f}" for value in steps],
        "lines": [_shape(line, part) for line in known for part in _stretches(line, scale)],
        "fills": [
            _fill(line, part, scale) for line in known if line.area for part in _stretches(line, scale)
        ],
        "spots": _spots(lines, labels, tell),
        "labels": few(axis or labels),
        "legend": [{"name": line.name, "tone": line.tone} for line in lines],
    }


def spark(values: Sequence[float], told: str) -> dict[str, Any]:
    """Return a small line without axes, for `ui.spark`."""
    high = max(values, default=0.0) or 1.0
    step = SPARK_WIDTH / max(len(values) - 1, 1)
    points = [(n * step, (SPARK_HEIGHT - 2) * (1 - value / high) + 1) for n, value in enumerate(values)]
    drawn = _points(points) if any(values) and len(values) > 1 else ""
    fill = f"0,{SPARK_HEIGHT} {drawn} {SPARK_WIDTH},{SPARK_HEIGHT}"
    return {"width": SPARK_WIDTH, "height": SPARK_HEIGHT, "points": drawn, "fill": fill, "told": told}


def ended(values: Sequence[int]) -> dict[str, Any]:
    """Return the line of the tasks of one queue in the last hour."""
    return spark(values, f"{count(sum(values), 'task')} ended in the last hour")


def clock(moments: Sequence[datetime], pattern: str = "%d %b %H:%M") -> list[str]:
    """Return the labels of points in time."""
    return [moment.strftime(pattern) for moment in moments]


def few(labels: Sequence[str]) -> list[str]:
    """Return at most five labels, evenly spread, including both ends."""
    last = len(labels) - 1
    return [labels[n] for n in sorted({round(part * last / 4) for part in range(5)})] if labels else []


def round_up(value: float) -> float:
    """Return the next of 1, 2, 3, 4, 5, 6, 8, 10, 20 …, so that the axis does not change with every value."""
    if value <= 0:
        return 1.0
    size: float = 10.0 ** len(str(int(value))) / 10 if value >= 1 else 0.001
    while True:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if size * factor >= value:
                return round(size * factor, 6)
        size *= 10


def _stretches(line: ChartLine, scale: tuple[float, float]) -> list[list[Point]]:
    """Return the parts of the line between its gaps.

    A single point becomes a short stroke, so that it is visible. A run of zeros is not drawn.
    """
    found: list[list[Point]] = [[]]
    for n, value in enumerate(line.values):
        if value is None or not any(line.values[max(n - 1, 0) : n + 2]):
            found.append([])
        else:
            found[-1].append((_x(n, len(line.values)), _y(value, scale)))
    return [_stroke(part[0], len(line.values)) if len(part) == 1 else part for part in found if part]


def _stroke(point: Point, count: int) -> list[Point]:
    width = max(WIDTH / max(count, 2), SHORTEST)
    start = min(max(point[0] - width / 2, 0.0), WIDTH - width)
    return [(start, point[1]), (start + width, point[1])]


def _shape(line: ChartLine, points: list[Point]) -> dict[str, str]:
    return {"tone": line.tone, "points": _points(points)}


def _fill(line: ChartLine, points: list[Point], scale: tuple[float, float]) -> dict[str, str]:
    floor = _y(0.0, scale)
    edge = [(points[0][0], floor), *points, (points[-1][0], floor)]
    return {"tone": line.tone, "points": _points(edge)}


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _spots(lines: Sequence[ChartLine], labels: Sequence[str], tell: Tell) -> list[dict[str, str]]:
    """Return one hover area per point, with the values of all lines in its tooltip."""
    width = WIDTH / max(len(labels) - 1, 1)
    return [
        {
            "x": f"{_x(n, len(labels)) - width / 2:.1f}",
            "width": f"{width:.1f}",
            "tip": f"{label}\n" + "\n".join(f"{line.name}: {_at(line, n, tell)}" for line in lines),
        }
        for n, label in enumerate(labels)
    ]


def _at(line: ChartLine, n: int, tell: Tell) -> str:
    value = line.values[n] if n < len(line.values) else None
    return "–" if value is None else tell(value)


def _x(n: int, count: int) -> float:
    return WIDTH * n / (count - 1) if count > 1 else WIDTH / 2


def _y(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return HEIGHT * (1 - (value - low) / ((high - low) or 1))


def _last(line: ChartLine, tell: Tell) -> str:
    known = [value for value in line.values if value is not None]
    return tell(known[-1]) if known else "nothing yet"
