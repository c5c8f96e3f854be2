"""What a supervisor can ask of a slot, and how a slot describes a crash."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple


class OrderKind(IntEnum):
    """The kind of an order. A higher one replaces a lower one that is still pending."""

    END = 1
    """End the process; this counts as a crash."""
    RESTART = 2
    """Replace the process, because an operator asked for it."""
    DRAIN = 3
    """Let the worker finish its tasks, then remove the slot."""
    STOP = 4
    """Stop the worker within the grace time, then remove the slot."""


class SlotOrder(NamedTuple):
    kind: OrderKind
    reason: str
    outcome: str = "lost"
    """The outcome of the worker's tasks if the process must be killed."""


class Crash(NamedTuple):
    """An unexpected end of a process."""

    reason: str
    suspects: Sequence[int] = ()
    """The leases that may have caused it."""
    counts: bool = True
    """Whether it counts towards the restart limit."""
