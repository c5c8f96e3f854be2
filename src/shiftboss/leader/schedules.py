"""Schedules: the leader enqueues a task at every tick of a cron expression.

Times are in the schedule's time zone, and daylight saving time follows the rules of Debian's cron. When the
clock goes forward, a skipped tick fires right after the gap. When it goes back, a tick at a fixed hour fires
once, the first time; an interval of minutes or hours continues in real time.

A tick that is less than a minute late still fires. Of ticks that are later than that, `latest` fires only the
last one, `all` every one (up to the latest thousand), and `skip` none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson
from cronsim import CronSim, CronSimError

from shiftboss.db import Database
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, NotFound, UsageError

log = get_logger(__name__)

Missed = Literal["latest", "all", "skip"]
IN_TIME = timedelta(minutes=1)
MOST_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True)
class Cron:
    """A schedule. `task` has the fields of `shiftboss.enqueue`: task_type, params, queue and so on."""

    name: str
    cron: str
    task: dict[str, Any] = field(default_factory=dict)
    timezone: str = "UTC"
    missed: Missed = "latest"

    def check(self) -> None:
        """Raise UsageError if the schedule is invalid or would never fire."""
        if not self.name or len(self.name) > 200:
            raise UsageError("a schedule needs a name of at most 200 characters")
        if not self.task.get("task_type"):
            raise UsageError(f"schedule {self.name!r} has no task_type")
        if self.missed not in ("latest", "all", "skip"):
            raise UsageError(f"missed cannot be {self.missed!r}", hint="use latest, all or skip")
        try:
            orjson.dumps(self.task, option=orjson.OPT_NON_STR_KEYS)
        except TypeError as error:
            raise UsageError(
                f"the task of schedule {self.name!r} cannot be encoded as JSON: {error}"
            ) from None
        next_tick(self.cron, self.timezone, datetime.now(UTC))


def next_tick(cron: str, timezone: str, after: datetime) -> datetime:
    """Return the first tick after a time."""
    try:
        return next(_simulate(cron, timezone, after)).astimezone(UTC)
    except StopIteration:
        raise UsageError(f"{cron!r} never fires", hint="use a date that exists") from None


def due_ticks(
    cron: str, timezone: str, since: datetime, now: datetime, missed: Missed
) -> tuple[list[datetime], datetime]:
    """Return the ticks from `since` to `now` that must fire, and the next tick after `now`."""
    backwards = _simulate(cron, timezone, now + timedelta(seconds=1), reverse=True)
    passed: list[datetime] = []
    for tick in takewhile(lambda tick: tick >= since, (tick.astimezone(UTC) for tick in backwards)):
        if tick <= now:
            passed.append(tick)
        if len(passed) == MOST_AT_ONCE or (missed != "all" and passed and passed[-1] < now - IN_TIME):
            break
    return _wanted(passed[::-1], now, missed), next_tick(cron, timezone, now)


def _wanted(passed: list[datetime], now: datetime, missed: Missed) -> list[datetime]:
    if missed == "all":
        return passed
    in_time = [tick for tick in passed if tick >= now - IN_TIME]
    return in_time if in_time or missed == "skip" else passed[-1:]


def _simulate(cron: str, timezone: str, start: datetime, reverse: bool = False) -> CronSim:
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"there is no time zone {timezone!r}", hint="use a name like Europe/Madrid, or UTC"
        ) from None
    try:
        return CronSim(cron, start.astimezone(zone), reverse=reverse)
    except CronSimError as error:
        raise UsageError(
            f"{cron!r} is not a cron expression: {error}",
            hint="minute hour day month weekday, for example '*/5 * * * *'",
        ) from None


async def register(db: Database, crons: Iterable[Cron]) -> None:
    """Create or replace schedules. An unchanged schedule keeps its next tick."""
    crons = list(crons)
    for cron in crons:
        cron.check()
    for cron in crons:
        await db.schedules.rehearse(cron.task)
        first = next_tick(cron.cron, cron.timezone, await _now(db))
        await db.schedules.put(cron.name, cron.cron, cron.timezone, cron.task, cron.missed, first)


def task(task_type: str, params: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the `task` of a schedule. Fields that are None get the database's defaults."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {"task_type": task_type, "params": params} | given


async def set_paused(db: Database, name: str, paused: bool) -> None:
    """Pause or resume a schedule. Ticks during the pause are not made up for."""
    row = await db.schedules.get(name)
    if row is None:
        raise unknown(name)
    await db.schedules.set_paused(name, paused, next_tick(row["cron"], row["timezone"], await _now(db)))


def unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r}", hint="`shiftboss schedule list` shows all schedules")


async def fire_due(db: Database) -> list[UUID]:
    """Enqueue the tasks of schedules that are due. Safe to run in two processes at once."""
    made: list[UUID] = []
    for row in await db.schedules.due():
        name, due = row["name"], row["next_tick"]
        try:
            ticks, following = due_ticks(row["cron"], row["timezone"], due, row["now"], row["missed"])
        except (UsageError, ValueError, OverflowError) as error:  # the table was changed with SQL
            await _refused(db, name, f"paused, because its times are invalid: {error}")
            await db.schedules.set_paused(name, True, due)
            continue
        try:
            made += await db.schedules.fire(name, due, ticks, following)
        except DatabaseError as error:
            if error.about_everything:
                raise
            await _refused(db, name, error.message)
            await db.schedules.fire(name, due, [], following)  # otherwise it would block all others
    return made


async def _refused(db: Database, name: str, reason: str) -> None:
    log.error("cannot fire schedule", schedule=name, reason=reason)
    await db.events.note("schedule.refused", details={"schedule": name, "reason": reason})


async def _now(db: Database) -> datetime:
    return await db.call_value(datetime, "now")
