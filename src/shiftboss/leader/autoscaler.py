"""The autoscaler: `decide` computes the number of workers, a duty of the leader applies it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from shiftboss.db import Database
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.settings import AutoscaleSettings

log = get_logger(__name__)

LOOK_AHEAD = 30.0
"""Seconds for which a growing queue is expected to keep growing."""


@dataclass(frozen=True, kw_only=True)
class QueueLoad:
    """Measurements of a queue: waiting and running tasks, rates per second, and its workers."""

    depth: int
    workers: int
    oldest_seconds: float = 0.0
    running: int = 0
    slots: int = 0
    """The capacity of all workers together."""
    arrivals: float = 0.0
    completions: float = 0.0
    task_seconds: float = 0.0

    @property
    def slots_each(self) -> float:
        return max(self.slots / self.workers, 1.0) if self.workers else 1.0


class Decision(NamedTuple):
    workers: int
    reason: str


def decide(settings: AutoscaleSettings, load: QueueLoad, since_change: float) -> Decision:
    """Return how many workers there should be, `since_change` seconds after the last change."""
    now = load.workers
    low, high = settings.min_workers, max(settings.max_workers, settings.min_workers)
    if not low <= now <= high:
        return Decision(min(max(now, low), high), f"not between {low} and {high}")
    wanted, reason = _wanted(settings, load)
    wanted = min(max(wanted, low), high)
    if wanted != now and since_change < settings.cooldown_seconds:
        return Decision(now, f"cooling down; then {wanted}: {reason}")
    return Decision(wanted, reason)


def _wanted(settings: AutoscaleSettings, load: QueueLoad) -> tuple[int, str]:
    now, target = load.workers, settings.target_queue_depth
    growth = max(load.arrivals - load.completions, 0.0) * LOOK_AHEAD
    expected = load.depth + growth if load.depth else 0.0
    share = expected / (now * target) if now else math.inf if load.depth else 0.0
    needed = max(_to_keep_up(load), math.ceil(expected / target))
    if share > settings.scale_up_threshold:
        # At most double the number: the effect of the last change is not visible yet.
        wanted = min(max(needed, now + 1), max(2 * now, 1))
        return wanted, f"{load.depth} tasks wait, {share:.0%} of the target with {now} workers"
    if load.depth and load.oldest_seconds > settings.max_age_seconds:
        return now + 1, f"the oldest task has waited for {load.oldest_seconds:.0f} s"
    if share < settings.scale_down_threshold and needed < now:
        # At most a quarter at a time: starting a worker again is expensive.
        return max(needed, now - max(now // 4, 1)), f"{needed} workers can handle the load"
    return now, "the load is on target"


def _to_keep_up(load: QueueLoad) -> int:
    """Return how many workers the incoming tasks keep busy, even if none of them waits."""
    slots = max(load.arrivals * load.task_seconds, float(load.running))
    return math.ceil(slots / load.slots_each)


class SupervisorSlots:
    """The slots for a queue of all live supervisors. Superfluous workers are drained before they end."""

    def __init__(self, db: Database, queue: str) -> None:
        self._db, self._queue = db, queue

    async def workers(self) -> int:
        """Return the number that was last requested."""
        return sum((await self._by_host()).values())

    async def _by_host(self) -> dict[str, int]:
        rows = await self._db.fetch(
            "SELECT host, (slots ->> %(q)s)::int AS n FROM shiftboss.supervisors WHERE slots ? %(q)s"
            " AND shiftboss.is_supervised(host) ORDER BY host",
            {"q": self._queue},
        )
        return {row["host"]: row["n"] for row in rows}

    async def scale(self, count: int) -> None:
        """Distribute `count` workers over the hosts."""
        slots = await self._by_host()
        if not slots:
            await self._db.health.set_slots(self._queue, count)
        for n, (host, now) in enumerate(slots.items()):
            share = (count + len(slots) - 1 - n) // len(slots)
            if share != now:
                await self._db.health.set_slots(self._queue, share, host)


class Autoscaler:
    """Measures the load of one queue, decides, and sets the number of workers."""

    def __init__(self, db: Database, settings: AutoscaleSettings) -> None:
        self._db, self._settings = db, settings
        self._slots = SupervisorSlots(db, settings.queue)

    async def __call__(self, since_change: float = math.inf) -> Decision:
        """Scale once. `since_change` is the time since the last change in seconds."""
        queue = self._settings.queue
        row = await self._db.autoscale.load(queue)
        row["workers"] = now = await self._slots.workers()
        decision = decide(self._settings, QueueLoad(**row), since_change)
        if decision.workers != now:
            await self._slots.scale(decision.workers)
            await self._db.autoscale.scaled(queue)
            log.info("scaled", queue=queue, before=now, workers=decision.workers)
            details = {"queue": queue, "before": now} | decision._asdict()
            await self._db.events.note("autoscale.changed", details=details)
        return decision


class FleetScaler:
    """A duty of the leader: scales every queue that has autoscaling enabled."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._looked: dict[str, float] = {}

    async def __call__(self) -> None:
        for row in await self._db.autoscale.all():
            try:
                settings = _validated(row["queue"], row["settings"])
            except UsageError as error:  # the table was changed with SQL
                log.warning("cannot scale queue", queue=row["queue"], reason=error.message)
                continue
            if settings.enabled and self._due(settings):
                await self._scale(settings, row["since_change"])

    def _due(self, settings: AutoscaleSettings) -> bool:
        now = time.monotonic()
        if now - self._looked.get(settings.queue, -math.inf) < settings.every_seconds:
            return False
        self._looked[settings.queue] = now
        return True

    async def _scale(self, settings: AutoscaleSettings, since_change: float | None) -> None:
        """Scale one queue. An error that concerns only this queue does not affect the others."""
        try:
            await Autoscaler(self._db, settings)(math.inf if since_change is None else since_change)
        except DatabaseError as error:
            if error.about_everything:
                raise
            log.warning("cannot scale queue", queue=settings.queue, reason=error.message)


async def set_autoscale(db: Database, queue: str, given: Mapping[str, Any]) -> AutoscaleSettings:
    """Change some settings of a queue; None restores a default. Return all its settings."""
    if "queue" in given:
        raise UsageError("the queue cannot be changed", hint="change the settings of the other queue")
    merged = {**await db.autoscale.get(queue), **given}
    checked = _validated(queue, {key: value for key, value in merged.items() if value is not None})
    values = {key: None if value is None else getattr(checked, key) for key, value in given.items()}
    return _validated(queue, await db.autoscale.set_autoscale(queue, values))


async def configure(db: Database, settings: AutoscaleSettings) -> None:
    """Store the settings that a configuration sets explicitly, and keep all others."""
    given = settings.model_dump(exclude_unset=True, exclude={"queue"})
    if await db.autoscale.configure_autoscale(settings.queue, given):
        log.info("autoscaling configured", queue=settings.queue, **given)


async def stored_autoscale(db: Database) -> list[AutoscaleSettings]:
    """Return the settings of every queue that has any, with defaults."""
    return [_validated(row["queue"], row["settings"]) for row in await db.autoscale.all()]


def _validated(queue: str, settings: Mapping[str, Any]) -> AutoscaleSettings:
    try:
        return AutoscaleSettings.model_validate({**settings, "queue": queue})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        hint = f"the settings are {', '.join(AutoscaleSettings.model_fields)}"
        raise UsageError(f"autoscale of {queue!r}: {key}: {first['msg']}", hint=hint) from None
