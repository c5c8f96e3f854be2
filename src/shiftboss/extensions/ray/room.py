"""How much of a Ray cluster is free, and how many tasks of ours that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler

Resources = Mapping[str, float]


def demand(handler: Handler) -> dict[str, float]:
    """What one task takes, in Ray's words."""
    asked = {
        "CPU": 1.0 if handler.cpus is None else handler.cpus,
        "GPU": handler.gpus,
        "memory": handler.memory,
    }
    return {name: float(value) for name, value in asked.items() if value}


def less(free: Resources, taken: Iterable[Resources]) -> dict[str, float]:
    """What is left when these have theirs."""
    left = dict(free)
    for one in taken:
        for name, value in one.items():
            left[name] = left.get(name, 0.0) - value
    return left


def fitting(free: Resources, one: Resources) -> int:
    """How many tasks of this demand fit."""
    shares = [floor((free.get(name, 0.0) + 1e-6) / value) for name, value in one.items()]
    return max(min(shares, default=1000), 0)


def room(free: Resources, demands: Iterable[Resources]) -> int:
    """How many tasks to claim, whichever of these they turn out to be.

    As many as of the largest kind fit. If only smaller ones do, one: a larger one waits in Ray's own queue.
    """
    counts = [fitting(free, one) for one in demands]
    return max(min(counts), min(max(counts), 1)) if counts else 0
