"""Rules for alerts. One list: announcements, Prometheus rules and the Grafana board follow from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Found(NamedTuple):
    """Something that a rule is about, over its threshold now."""

    subject: str
    """A queue, a task type, a slot, a provider; empty: the whole fleet."""
    message: str
    advice: str
    """A command that shows more or helps, exactly as it can be run."""
    value: float


#: `async (db, threshold) -> what is over it`
Find = Callable[[Any, float], Awaitable[list[Found]]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What to look for. Extensions bring theirs by `Extension.rules`."""

    name: str
    summary: str
    severity: Literal["warning", "critical"] = "warning"
    threshold: float
    """Unless `alerts.thresholds` says otherwise."""
    find: Find
    expression: str
    """The same for Prometheus; `$threshold` stands for the threshold."""
    lasting: str = "1m"
    """How long it must hold before Prometheus alerts."""
    panel: str
    """What the Grafana board draws."""
    unit: str = "short"
    """The unit of the panel, as Grafana names it."""
