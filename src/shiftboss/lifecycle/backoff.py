"""How long to wait after the next failure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Doubles from `base` to `maximum`; jitter keeps those who fail together from coming back together."""

    base: float = 0.2
    maximum: float = 15.0
    factor: float = 2.0
    jitter: float = 0.25
    _failures: int = field(default=0, init=False)

    @property
    def failures(self) -> int:
        return self._failures

    def next(self) -> float:
        """Seconds to wait now; call once per failure."""
        delay = min(self.base * self.factor**self._failures, self.maximum)
        self._failures += 1
        return delay * random.uniform(1 - self.jitter, 1 + self.jitter)

    def reset(self) -> None:
        """All is well again."""
        self._failures = 0
