"""Measures how long a coordinator takes to read, schedule and assign tasks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


def _window() -> deque[float]:
    return deque(maxlen=1000)


def quantile(values: deque[float], share: float) -> float:
    ranked = sorted(values)
    return ranked[min(int(len(ranked) * share), len(ranked) - 1)] if ranked else 0.0


@dataclass
class Timings:
    """Seconds of the last thousand passes, and counts since the start."""

    passes: int = 0
    assigned: int = 0
    reading: deque[float] = field(default_factory=_window)
    scheduling: deque[float] = field(default_factory=_window)
    claiming: deque[float] = field(default_factory=_window)

    def passed(self, reading: float, scheduling: float, claiming: float, assigned: int) -> None:
        self.passes += 1
        self.assigned += assigned
        self.reading.append(reading)
        self.scheduling.append(scheduling)
        self.claiming.append(claiming)

    def as_json(self) -> dict[str, float]:
        found: dict[str, float] = {"passes": self.passes, "assigned": self.assigned}
        for name, values in (
            ("reading", self.reading),
            ("scheduling", self.scheduling),
            ("claim", self.claiming),
        ):
            found[f"{name}_p50_seconds"] = quantile(values, 0.5)
            found[f"{name}_p99_seconds"] = quantile(values, 0.99)
        return found
