"""Simulation of the autoscaler with a generated or recorded load, and a plot of it."""

from __future__ import annotations

import csv
import math
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shiftboss.leader.autoscaler import QueueLoad, decide
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import AutoscaleSettings

WINDOW = 60
START_SECONDS = 3


class SimulatedSecond(NamedTuple):
    """One second of a simulation."""

    second: int
    arrivals: float
    depth: int
    running: int
    workers: int
    reason: str


PATTERNS: dict[str, Callable[[float], float]] = {
    "steady": lambda share: 1.0,
    "ramp": lambda share: 2 * share,
    "burst": lambda share: 6.0 if 0.3 < share < 0.4 else 0.5,
    "day": lambda share: 1 - math.cos(2 * math.pi * share),
}


def made_load(pattern: str, seconds: int, rate: float) -> list[float]:
    """Return the arrivals in each second, with an average of `rate` per second."""
    if pattern not in PATTERNS:
        raise UsageError(f"there is no pattern {pattern!r}", hint=f"use one of {', '.join(PATTERNS)}")
    shape = PATTERNS[pattern]
    return [rate * shape(second / seconds) for second in range(seconds)]


def recorded_load(path: Path) -> list[float]:
    """Read the arrivals in each second from a file with one number per line, or from its last column."""
    try:
        with path.open(newline="") as file:
            return [float(row[-1]) for row in csv.reader(file) if row and _is_number(row[-1])]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def simulate(
    settings: AutoscaleSettings, arrivals: Sequence[float], task_seconds: float, slots: int
) -> list[SimulatedSecond]:
    """Simulate tasks that run on `slots` slots per worker, and the decisions of the autoscaler."""
    fleet = _Fleet(settings, task_seconds, slots)
    return [fleet.step(second, arriving) for second, arriving in enumerate(arrivals)]


class _Fleet:
    """Waiting tasks as arrival times, and running tasks as end times."""

    def __init__(self, settings: AutoscaleSettings, task_seconds: float, slots: int) -> None:
        self._settings, self._task_seconds, self._slots = settings, task_seconds, slots
        self._workers = max(settings.min_workers, 0)
        self._starting: deque[tuple[int, int]] = deque()
        self._waiting: deque[int] = deque()
        self._ends: deque[float] = deque()
        self._came: deque[int] = deque(maxlen=WINDOW)
        self._ended: deque[int] = deque(maxlen=WINDOW)
        self._part = 0.0
        self._changed = -math.inf
        self._reason = ""

    def step(self, second: int, arriving: float) -> SimulatedSecond:
        self._part += arriving
        come = int(self._part)
        self._part -= come
        self._waiting.extend([second] * come)
        self._came.append(come)
        self._run(second)
        if second % max(round(self._settings.every_seconds), 1) == 0:
            self._decide(second)
        return SimulatedSecond(
            second, arriving, len(self._waiting), len(self._ends), self._workers, self._reason
        )

    def _run(self, second: int) -> None:
        ended = 0
        while self._ends and self._ends[0] <= second:
            self._ends.popleft()
            ended += 1
        up = self._workers - sum(count for since, count in self._starting if second - since < START_SECONDS)
        while self._waiting and len(self._ends) < up * self._slots:
            self._waiting.popleft()
            if self._task_seconds <= 1:  # it ends within this second
                ended += 1
            self._ends.append(second + max(self._task_seconds, 1.0))
        self._ended.append(ended)

    def _decide(self, second: int) -> None:
        load = QueueLoad(
            depth=len(self._waiting),
            workers=self._workers,
            oldest_seconds=second - self._waiting[0] if self._waiting else 0,
            running=len(self._ends),
            slots=self._workers * self._slots,
            arrivals=sum(self._came) / len(self._came),
            completions=sum(self._ended) / len(self._ended),
            task_seconds=self._task_seconds,
        )
        decision = decide(self._settings, load, second - self._changed)
        self._reason = decision.reason
        if decision.workers != self._workers:
            if decision.workers > self._workers:
                self._starting.append((second, decision.workers - self._workers))
            self._workers, self._changed = decision.workers, second


def plot(moments: Sequence[SimulatedSecond], path: Path, settings: AutoscaleSettings) -> None:
    """Plot the arrivals, the waiting tasks and the number of workers to a file."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise UsageError("a plot needs matplotlib", hint="pip install matplotlib") from None
    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, sharex=True, figsize=(10, 7))
    minutes = [moment.second / 60 for moment in moments]
    rows: list[tuple[str, list[Any], str]] = [
        ("arrivals per second", [moment.arrivals for moment in moments], "tab:blue"),
        ("waiting", [moment.depth for moment in moments], "tab:orange"),
        ("workers", [moment.workers for moment in moments], "tab:green"),
    ]
    for axis, (label, values, colour) in zip(axes, rows, strict=True):
        axis.step(minutes, values, where="post", color=colour)
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    for bound in (settings.min_workers, settings.max_workers):
        axes[2].axhline(bound, color="grey", linestyle=":", linewidth=1)
    axes[2].set_xlabel("minutes")
    figure.suptitle("What the autoscaler would do")
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {error}") from error
    finally:
        pyplot.close(figure)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and float(text) >= 0
    except ValueError:
        return False
