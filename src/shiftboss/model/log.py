"""Log lines of tasks."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID


class LogLine(NamedTuple):
    """One line of a task's log."""

    task_id: UUID
    lease: int
    attempt: int
    step: str | None
    """`name#ordinal` of the step that logged the line."""
    at: float
    """Unix time in seconds, by the worker's clock."""
    level: int
    """A level of `logging`: 20 is info."""
    logger: str
    message: str
    dropped: int = 0
    """If not 0, this line stands for that many dropped lines."""
