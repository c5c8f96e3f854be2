"""Slots: their states, the restart policy, and the detection of silent processes. Callers pass the time."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SlotStatus(StrEnum):
    """The states of a slot. The SQL function `shiftboss.may_become` defines the transitions."""

    STARTING = "starting"
    HEALTHY = "healthy"
    STOPPING = "stopping"
    CRASHED = "crashed"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """How often and how soon a crashed process is restarted."""

    limit: int = 5
    window: float = 300.0
    first_delay: float = 1.0
    max_delay: float = 60.0
    jitter: float = 0.1

    def delay(self, recent: int, chance: Callable[[], float] = random.random) -> float | None:
        """Return the seconds to wait after `recent` restarts within the window. None: the slot fails."""
        if recent >= self.limit:
            return None
        # 2**30 is far above any maximum; without this bound a long history would overflow.
        plain = min(self.first_delay * 2.0 ** min(recent, 30), self.max_delay)
        return plain * (1 + self.jitter * (2 * chance() - 1))


class RestartHistory:
    """Times of restarts by the monotonic clock. Only those within the window count."""

    def __init__(self, window: float, times: Iterable[float] = ()) -> None:
        self._window = window
        self._times = deque(sorted(times))

    def add(self, now: float) -> None:
        self._times.append(now)

    def recent(self, now: float) -> int:
        while self._times and self._times[0] <= now - self._window:
            self._times.popleft()
        return len(self._times)

    def forget(self) -> None:
        self._times.clear()


@dataclass
class _Observation:
    sign: Hashable
    silence: float = 0.0


@dataclass
class SilenceWatch:
    """Measures for how long signs of life have not changed.

    Only a change of a sign counts, never its distance to a clock, so clock jumps have no effect. The time
    between two looks counts as at most `longest_step`, so that no process is declared dead because the
    watcher could not look: the database was away, or the host was suspended.
    """

    longest_step: float
    _seen: dict[str, _Observation] = field(default_factory=dict)
    _looked: float | None = None

    def look(self, signs: Mapping[str, Hashable], now: float) -> dict[str, float]:
        """Return the seconds of silence of each name in `signs`, and forget all other names."""
        step = 0.0 if self._looked is None else min(max(now - self._looked, 0.0), self.longest_step)
        self._looked = now
        self._seen = {name: self._observe(name, sign, step) for name, sign in signs.items()}
        return {name: observation.silence for name, observation in self._seen.items()}

    def blind(self) -> None:
        """Start all measurements again, because a look failed."""
        self._seen.clear()
        self._looked = None

    def _observe(self, name: str, sign: Hashable, step: float) -> _Observation:
        before = self._seen.get(name)
        if before is None or before.sign != sign:
            return _Observation(sign)
        before.silence += step
        return before


def member_id(host: str, component: str) -> str:
    """Return a slot's id in the registry. It includes the host, because hosts share a database."""
    return f"{host}/{component}"
