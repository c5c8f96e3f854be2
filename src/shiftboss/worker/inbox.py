"""Claimed tasks that have not started yet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter

from shiftboss.model.task import Claimed, Postpone, Report
from shiftboss.worker.outbox import Outbox

STUCK_SECONDS = 1.0
_crashes = attrgetter("crashes")


class Inbox(deque[tuple[Claimed, float]]):
    """Tasks with the time of their claim. It holds at most one suspect, which is the last entry."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox

    def accept(self, claimed: Sequence[Claimed]) -> int:
        """Add claimed tasks, and postpone all suspects but one. Return how many were added."""
        if any(map(_crashes, claimed)):
            claimed = self._with_one_suspect(claimed)
        self.extend(zip(claimed, repeat(time.monotonic())))
        return len(claimed)

    def _with_one_suspect(self, claimed: Sequence[Claimed]) -> list[Claimed]:
        """Put one suspect last and postpone the others.

        A suspect starts when all other tasks have ended and are reported. If it kills this worker, no other
        task is blamed.
        """
        suspects = [task for task in claimed if task.crashes]
        for task in suspects[1:]:
            self._outbox.put(Report(task, Postpone(1.0, "its worker crashed: waits to run alone"), 0.0))
        return [task for task in claimed if not task.crashes] + suspects[:1]

    @property
    def has_suspect(self) -> bool:
        return bool(self) and self[-1][0].crashes > 0

    @property
    def stuck(self) -> bool:
        """Whether tasks that were claimed ahead wait too long behind slow ones."""
        return bool(self) and time.monotonic() - self[0][1] > STUCK_SECONDS and not self.has_suspect

    def give_back(self, reason: str) -> None:
        """Return all tasks to the queue."""
        while self:
            task, _ = self.pop()
            self._outbox.put(Report(task, Postpone(0, reason), 0.0))

    def take(self, lease: int) -> Claimed | None:
        """Remove and return the task with this lease, if it is here."""
        for entry in self:
            if entry[0].lease == lease:
                self.remove(entry)
                return entry[0]
        return None
