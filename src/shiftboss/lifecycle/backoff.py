"""Exponential backoff with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays that double from `base` to `maximum`. Jitter spreads the retries of many processes."""

    base: float = 0.2
    maximum: float = 15.0
    factor: float = 2.0
    jitter: float = 0.25
    failures: int = field(default=0, init=False)

    def next(self) -> float:
        """Return the seconds to wait; call it once per failure."""
        delay = min(self.base * self.factor**self.failures, self.maximum)
        self.failures += 1
        return delay * random.uniform(1 - self.jitter, 1 + self.jitter)

    def reset(self) -> None:
        self.failures = 0
