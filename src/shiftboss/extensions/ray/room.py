"""Computes how many tasks fit into the free resources of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler

Resources = Mapping[str, float]


def demand(handler: Handler) -> dict[str, float]:
    """Return the resources of one task, with Ray's names."""
    asked = {
        "CPU": 1.0 if handler.cpus is None else handler.cpus,
        "GPU": handler.gpus,
        "memory": handler.memory,
    }
    return {name: float(value) for name, value in asked.items() if value}


def less(free: Resources, taken: Iterable[Resources]) -> dict[str, float]:
    """Return the resources that are left after subtracting `taken`."""
    left = dict(free)
    for one in taken:
        for name, value in one.items():
            left[name] = left.get(name, 0.0) - value
    return left


def fitting(free: Resources, one: Resources) -> int:
    """Return how many tasks with this demand fit."""
    shares = [floor((free.get(name, 0.0) + 1e-6) / value) for name, value in one.items()]
    return max(min(shares, default=1000), 0)


def room(free: Resources, demands: Iterable[Resources]) -> int:
    """Return how many tasks to claim, whatever their types are.

    This is the number of the largest tasks that fit. If only smaller ones fit, it is 1; a larger task then
    waits in Ray's own queue.
    """
    counts = [fitting(free, one) for one in demands]
    return max(min(counts), min(max(counts), 1)) if counts else 0
