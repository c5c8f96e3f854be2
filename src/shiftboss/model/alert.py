"""Alert rules. Notifications, Prometheus rules and the Grafana dashboard are derived from one list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Found(NamedTuple):
    """One subject that exceeds the threshold of a rule."""

    subject: str
    """A queue, a task type, a slot or a provider. Empty: the whole fleet."""
    message: str
    advice: str
    """A command that shows details or solves the problem, exactly as it can be run."""
    value: float


#: `async (db, threshold) -> list[Found]`
Find = Callable[[Any, float], Awaitable[list[Found]]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An alert rule. Extensions add theirs through `Extension.rules`."""

    name: str
    summary: str
    severity: Literal["warning", "critical"] = "warning"
    threshold: float
    """The default; `alerts.thresholds` overrides it."""
    find: Find
    expression: str
    """The condition for Prometheus, with `$threshold` in place of the threshold."""
    lasting: str = "1m"
    """How long the condition must hold before Prometheus alerts."""
    panel: str
    """The expression that the Grafana dashboard plots."""
    unit: str = "short"
    """The unit of the panel, as Grafana names it."""
