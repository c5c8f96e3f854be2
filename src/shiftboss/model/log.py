"""What a handler logged."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class LogLine(NamedTuple):
    """One line of a task's log."""

    task_id: UUID
    lease: int
    attempt: int
    step: str | None
    """`name#ordinal` of the step that logged it."""
    at: float
    """Unix seconds, by the worker's clock."""
    level: int
    """As in `logging`: 20 is info."""
    logger: str
    message: str
    dropped: int = 0
    """Not 0: this stands for so many lines that were not kept."""
