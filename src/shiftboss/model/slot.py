"""Slots: their states, the restart policy, and when silence means death. Pure: time comes in."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SlotStatus(StrEnum):
    """The states of a slot; `shiftboss.may_become` has the transitions between them."""

    STARTING = "starting"
    HEALTHY = "healthy"
    STOPPING = "stopping"
    CRASHED = "crashed"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """How often, and how soon, a crashed process is started again."""

    limit: int = 5
    window: float = 300.0
    first_delay: float = 1.0
    max_delay: float = 60.0
    jitter: float = 0.1

    def delay(self, recent: int, chance: Callable[[], float] = random.random) -> float | None:
        """Seconds to wait after `recent` restarts within the window. None: it is failed."""
        if recent >= self.limit:
            return None
        # 2**30 is far above any cap; without the bound a long history would overflow
        plain = min(self.first_delay * 2.0 ** min(recent, 30), self.max_delay)
        return plain * (1 + self.jitter * (2 * chance() - 1))


class RestartHistory:
    """Times of restarts on one clock that never jumps; only those within the window count."""

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
    """Measures how long signs of life have not changed, by looks at them.

    Only the change of a sign counts, never its distance to some clock, so clocks may jump. Time in which
    nobody could look (database away, host asleep) counts as at most `longest_step`, so nobody is called
    dead because the watcher was blind.
    """

    longest_step: float
    _seen: dict[str, _Observation] = field(default_factory=dict)
    _looked: float | None = None

    def look(self, signs: Mapping[str, Hashable], now: float) -> dict[str, float]:
        """Seconds of silence of everyone in `signs`; those no longer in it are forgotten."""
        step = 0.0 if self._looked is None else min(max(now - self._looked, 0.0), self.longest_step)
        self._looked = now
        self._seen = {name: self._observe(name, sign, step) for name, sign in signs.items()}
        return {name: observation.silence for name, observation in self._seen.items()}

    def blind(self) -> None:
        """A look failed: what was silent before gets its full time again."""
        self._seen.clear()
        self._looked = None

    def _observe(self, name: str, sign: Hashable, step: float) -> _Observation:
        before = self._seen.get(name)
        if before is None or before.sign != sign:
            return _Observation(sign)
        before.silence += step
        return before


def member_id(host: str, component: str) -> str:
    """A slot's id in the registry: hosts share a database, so it carries the host's name."""
    return f"{host}/{component}"
