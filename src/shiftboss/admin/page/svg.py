"""Charts as inline SVG: pure functions from numbers to a picture. Colours come from the style sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup

from shiftboss.admin.page.markup import html, join

Tell = Callable[[float], str]
WIDTH, HEIGHT = 600, 120  # units of the drawing; the style sheet says how large it is shown


class Line(NamedTuple):
    """One series; None is a gap. `tone` is a class of the style sheet."""

    name: str
    values: Sequence[float | None]
    tone: str = "s1"
    area: bool = False


def chart(
    lines: Sequence[Line],
    labels: Sequence[str],
    *,
    title: str,
    tell: Tell = "{:,.4g}".format,
    low: float = 0.0,
) -> Markup:
    """Lines over a common axis with round figures."""
    high = _round_up(max((v for line in lines for v in line.values if v is not None), default=0.0))
    low = min(low, 0.0)
    steps = [high, (low + high) / 2, low]
    rules = join(_rule(_y(value, low, high)) for value in steps)
    drawn = join(_draw(line, low, high) for line in lines)
    told = ", ".join(f"{line.name}: {_last(line, tell)}" for line in lines)
    return html(
        '<figure><div class="plot"><div class="axis-y" aria-hidden="true">{}</div>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">{}{}</svg>'
        '<div class="axis-x" aria-hidden="true">{}</div></div><figcaption>{}</figcaption></figure>',
        join(html("<span>{}</span>", tell(value) if value else "0") for value in steps),
        WIDTH,
        HEIGHT,
        f"{title}; now {told}",
        rules,
        drawn,
        join(html("<span>{}</span>", label) for label in _few(labels)),
        join(html('<span class="key {}">{}</span>', line.tone, line.name) for line in lines),
    )


def clock(moments: Sequence[datetime], pattern: str = "%H:%M") -> list[str]:
    return [moment.strftime(pattern) for moment in moments]


def _draw(line: Line, low: float, high: float) -> Markup:
    points = [(_x(n, len(line.values)), _y(v, low, high)) for n, v in enumerate(line.values) if v is not None]
    if not any(line.values):  # a line on the axis says no more than the axis
        return Markup("")
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    shape = html('<polyline class="line {}" points="{}"/>', line.tone, path)
    if len(points) == 1:
        shape = html('<circle class="dot {}" cx="{}" cy="{}" r="3"/>', line.tone, *points[0])
    if not line.area:
        return shape
    floor = _y(0.0, low, high)
    fill = f"{points[0][0]:.1f},{floor:.1f} {path} {points[-1][0]:.1f},{floor:.1f}"
    return html('<polygon class="fill {}" points="{}"/>', line.tone, fill) + shape


def _rule(y: float) -> Markup:
    return html('<line class="rule" x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/>', WIDTH, y, y)


def _few(labels: Sequence[str]) -> list[str]:
    """At most five, evenly spread, with both ends."""
    last = len(labels) - 1
    return [labels[n] for n in sorted({round(part * last / 4) for part in range(5)})] if labels else []


def _x(n: int, count: int) -> float:
    return WIDTH * n / max(count - 1, 1)


def _y(value: float, low: float, high: float) -> float:
    return HEIGHT * (1 - (value - low) / ((high - low) or 1))


def _round_up(value: float) -> float:
    """The next of 1, 2, 3, 4, 5, 6, 8, 10, 20 …, so that the axis does not jump with every reading."""
    if value <= 0:
        return 1.0
    size: float = 10.0 ** len(str(int(value))) / 10 if value >= 1 else 0.01
    while size < value:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if size * factor >= value:
                return round(size * factor, 4)
        size *= 10
    return round(size, 4)


def _last(line: Line, tell: Tell) -> str:
    known = [value for value in line.values if value is not None]
    return tell(known[-1]) if known else "nothing yet"
