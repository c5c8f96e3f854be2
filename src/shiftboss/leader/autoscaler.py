"""How many workers there should be: a pure decision, and the leader's duty that carries it out."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from shiftboss.db import Database
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.settings import AutoscaleSettings

log = get_logger(__name__)

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
    """One queue: measure, decide, and order what was decided."""

    def __init__(self, db: Database, launcher: Launcher, settings: AutoscaleSettings) -> None:
        self._db, self._launcher, self._settings = db, launcher, settings

    async def __call__(self, since_change: float = math.inf) -> Decision:
        """`since_change`: seconds since the number of workers changed last."""
        queue = self._settings.queue
        row = await self._db.autoscale.load(queue)
        row["workers"] = now = await self._launcher.workers()
        decision = decide(self._settings, Load(**row), since_change)
        if decision.workers != now:
            await self._launcher.scale(decision.workers)
            await self._db.autoscale.scaled(queue)
            log.info("scaled", queue=queue, before=now, workers=decision.workers)
            details = {"queue": queue, "before": now} | decision._asdict()
            await self._db.events.note("autoscale.changed", details=details)
        return decision


class FleetScaler:
    """The leader's duty: scale every queue whose stored settings ask for it."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._looked: dict[str, float] = {}

    async def __call__(self) -> None:
        for row in await self._db.autoscale.all():
            try:
                settings = _validated(row["queue"], row["settings"])
            except UsageError as error:  # written by hand into the table
                log.warning("a queue cannot be scaled", queue=row["queue"], reason=error.message)
                continue
            if settings.enabled and self._due(settings):
                scaler = Autoscaler(self._db, SupervisorLauncher(self._db, settings.queue), settings)
                await self._scale(scaler, settings.queue, row["since_change"])

    def _due(self, settings: AutoscaleSettings) -> bool:
        now = time.monotonic()
        if now - self._looked.get(settings.queue, -math.inf) < settings.every_seconds:
            return False
        self._looked[settings.queue] = now
        return True

    async def _scale(self, scaler: Autoscaler, queue: str, since_change: float | None) -> None:
        """One queue that cannot be scaled does not keep the others from it."""
        try:
            await scaler(math.inf if since_change is None else since_change)
        except DatabaseError as error:
            if error.about_everything:
                raise
            log.warning("a queue cannot be scaled", queue=queue, reason=error.message)


async def set_autoscale(db: Database, queue: str, given: Mapping[str, Any]) -> AutoscaleSettings:
    """Change some of a queue's settings; all of them as they are now. None brings a default back."""
    if "queue" in given:
        raise UsageError("the queue cannot be changed", hint="name the other queue instead")
    merged = {**await db.autoscale.get(queue), **given}
    checked = _validated(queue, {key: value for key, value in merged.items() if value is not None})
    values = {key: None if value is None else getattr(checked, key) for key, value in given.items()}
    return _validated(queue, await db.autoscale.set_autoscale(queue, values))


async def configure(db: Database, settings: AutoscaleSettings) -> None:
    """Store what a configuration says about scaling; what it does not mention stays as it is."""
    given = settings.model_dump(exclude_unset=True, exclude={"queue"})
    if await db.autoscale.configure_autoscale(settings.queue, given):
        log.info("autoscaling configured", queue=settings.queue, **given)


async def stored_autoscale(db: Database) -> list[AutoscaleSettings]:
    """The settings of every queue that has any, defaults included."""
    return [_validated(row["queue"], row["settings"]) for row in await db.autoscale.all()]


def _validated(queue: str, settings: Mapping[str, Any]) -> AutoscaleSettings:
    try:
        return AutoscaleSettings.model_validate({**settings, "queue": queue})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        hint = f"the keys are {', '.join(AutoscaleSettings.model_fields)}"
        raise UsageError(f"autoscale of {queue!r}: {key}: {first['msg']}", hint=hint) from None
