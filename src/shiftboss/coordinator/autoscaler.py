"""How many workers there should be: a pure decision, and the leader's duty that carries it out."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import structlog

from shiftboss.db import Database
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import AutoscaleSettings

log = structlog.get_logger()

LOOK_AHEAD = 30.0
"""Seconds for which a queue that grows is thought to go on growing."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What was measured: tasks that wait and run, rates per second, and what there is to carry them."""

    depth: int
    workers: int
    oldest_seconds: float = 0.0
    running: int = 0
    slots: int = 0
    """Of all workers together."""
    arrivals: float = 0.0
    completions: float = 0.0
    task_seconds: float = 0.0

    @property
    def slots_each(self) -> float:
        return max(self.slots / self.workers, 1.0) if self.workers else 1.0


class Decision(NamedTuple):
    workers: int
    reason: str


def decide(settings: AutoscaleSettings, load: Load, since_change: float) -> Decision:
    """How many workers there should be now, `since_change` seconds after that figure changed last."""
    now = load.workers
    low, high = settings.min_workers, max(settings.max_workers, settings.min_workers)
    if not low <= now <= high:
        return Decision(min(max(now, low), high), f"outside of {low} to {high}")
    wanted, reason = _wanted(settings, load)
    wanted = min(max(wanted, low), high)
    if wanted != now and since_change < settings.cooldown_seconds:
        return Decision(now, f"cooling down; {wanted} would be right: {reason}")
    return Decision(wanted, reason)


def _wanted(settings: AutoscaleSettings, load: Load) -> tuple[int, str]:
    now, target = load.workers, settings.target_queue_depth
    growth = max(load.arrivals - load.completions, 0.0) * LOOK_AHEAD
    expected = load.depth + growth if load.depth else 0.0
    share = expected / (now * target) if now else math.inf if load.depth else 0.0
    needed = max(_to_keep_up(load), math.ceil(expected / target))
    if share > settings.scale_up_threshold:
        # at most twice as many at a time: what was just asked for has not shown in the figures yet
        wanted = min(max(needed, now + 1), max(2 * now, 1))
        return wanted, f"{load.depth} wait, {share:.0%} of the target with {now} workers"
    if load.depth and load.oldest_seconds > settings.max_age_seconds:
        return now + 1, f"the oldest task has waited for {load.oldest_seconds:.0f} s"
    if share < settings.scale_down_threshold and needed < now:
        # a quarter at a time: workers that were ended too soon are dear
        return max(needed, now - max(now // 4, 1)), f"{needed} workers can carry what comes in"
    return now, "as it should be"


def _to_keep_up(load: Load) -> int:
    """Workers that are busy with what comes in, however short the queue is: a busy one with none waiting is
    not idle."""
    slots = max(load.arrivals * load.task_seconds, float(load.running))
    return math.ceil(slots / load.slots_each)


class Launcher(Protocol):
    """Starts and ends workers somewhere. Fewer means that workers are drained before they end."""

    async def workers(self) -> int:
        """How many there should be, as ordered last."""
        ...

    async def scale(self, count: int) -> None: ...


class SupervisorLauncher:
    """Processes of one host or of all that serve a queue, through their supervisors' slots for it."""

    def __init__(self, db: Database, queue: str, host: str | None = None) -> None:
        self._db, self._queue, self._host = db, queue, host

    async def workers(self) -> int:
        return sum((await self._slots()).values())

    async def _slots(self) -> dict[str, int]:
        """By host, of supervisors that live: a host that died takes no orders."""
        rows = await self._db.fetch(
            "SELECT host, (slots ->> %(q)s)::int AS n FROM shiftboss.supervisors WHERE slots ? %(q)s"
            " AND (%(h)s::text IS NULL OR host = %(h)s) AND shiftboss.is_supervised(host) ORDER BY host",
            {"q": self._queue, "h": self._host},
        )
        return {row["host"]: row["n"] for row in rows}

    async def scale(self, count: int) -> None:
        if count < 0:
            raise UsageError(f"{count} workers are too few", hint="0 or more")
        slots = await self._slots()
        if not slots:
            await self._db.health.set_slots(self._queue, count, self._host)
        for n, (host, now) in enumerate(slots.items()):
            share = (count + len(slots) - 1 - n) // len(slots)
            if share != now:
                await self._db.health.set_slots(self._queue, share, host)


class Autoscaler:
    """The leader's duty: measure, decide, and order what was decided."""

    def __init__(self, db: Database, launcher: Launcher, settings: AutoscaleSettings) -> None:
        self._db, self._launcher, self._settings = db, launcher, settings
        self._changed = -math.inf
        self.last: Decision | None = None

    async def __call__(self) -> Decision:
        row = await self._db.fleet.load(self._settings.queue)
        row["workers"] = now = await self._launcher.workers()
        decision = decide(self._settings, Load(**row), time.monotonic() - self._changed)
        if decision.workers != now:
            await self._launcher.scale(decision.workers)
            self._changed = time.monotonic()
            log.info("scaled", queue=self._settings.queue, before=now, workers=decision.workers)
            details = {"queue": self._settings.queue, "before": now} | decision._asdict()
            await self._db.events.note("autoscale.changed", details=details)
        self.last = decision
        return decision
