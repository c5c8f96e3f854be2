"""Schedules: tasks that are enqueued again and again, once per tick, by the leader.

Times are those of the schedule's time zone. Where clocks are put forward, a tick whose time is skipped comes
at the first moment after the gap. Where they are put back, a tick at a fixed hour comes once, at the first of
the two, and one that comes every so many minutes or hours goes on by real time: the rules of Debian's cron.

A tick that is less than a minute late is fired all the same. Of ticks that nobody could fire for longer than
that, `latest` fires the last one only, `all` each of them (the newest thousand), `skip` none.
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
    """A schedule. `task` is what shiftboss.enqueue takes: task_type, params, queue and so on."""

    name: str
    cron: str
    task: dict[str, Any] = field(default_factory=dict)
    timezone: str = "UTC"
    missed: Missed = "latest"

    def check(self) -> None:
        """Refuse what would never fire, or not as meant."""
        if not self.name or len(self.name) > 200:
            raise UsageError("a schedule needs a name of at most 200 characters")
        if not self.task.get("task_type"):
            raise UsageError(f"schedule {self.name!r} names no task_type")
        if self.missed not in ("latest", "all", "skip"):
            raise UsageError(f"missed is {self.missed!r}", hint="use latest, all or skip")
        try:
            orjson.dumps(self.task, option=orjson.OPT_NON_STR_KEYS)
        except TypeError as error:
            raise UsageError(
                f"the task of schedule {self.name!r} cannot be written as JSON: {error}"
            ) from None
        next_tick(self.cron, self.timezone, datetime.now(UTC))


def next_tick(cron: str, timezone: str, after: datetime) -> datetime:
    """The first tick after a moment."""
    try:
        return next(_simulate(cron, timezone, after)).astimezone(UTC)
    except StopIteration:
        raise UsageError(f"{cron!r} never comes", hint="is there such a date?") from None


def due_ticks(
    cron: str, timezone: str, since: datetime, now: datetime, missed: Missed
) -> tuple[list[datetime], datetime]:
    """Ticks to fire now, of those from `since` to `now`; and the one after."""
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
    """Make schedules known, or change them. One that is left as it is keeps its next tick."""
    crons = list(crons)
    for cron in crons:
        cron.check()
    for cron in crons:
        await db.schedules.rehearse(cron.task)
        first = next_tick(cron.cron, cron.timezone, await _now(db))
        await db.schedules.put(cron.name, cron.cron, cron.timezone, cron.task, cron.missed, first)


def task(task_type: str, params: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """What a schedule enqueues; fields that are None are left to the database."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {"task_type": task_type, "params": params} | given


async def set_paused(db: Database, name: str, paused: bool) -> None:
    """Pause or resume; ticks that pass meanwhile are not made up for."""
    row = await db.schedules.get(name)
    if row is None:
        raise unknown(name)
    await db.schedules.set_paused(name, paused, next_tick(row["cron"], row["timezone"], await _now(db)))


def unknown(name: str) -> NotFound:
    return NotFound(f"there is no schedule {name!r}", hint="`shiftboss schedule list` shows them")


async def fire_due(db: Database) -> list[UUID]:
    """The leader's duty, every second: enqueue what is due. Harmless if two do it at once."""
    made: list[UUID] = []
    for row in await db.schedules.due():
        name, due = row["name"], row["next_tick"]
        try:
            ticks, following = due_ticks(row["cron"], row["timezone"], due, row["now"], row["missed"])
        except (UsageError, ValueError, OverflowError) as error:  # written by hand into the table
            await _refused(db, name, f"paused, as its times cannot be read: {error}")
            await db.schedules.set_paused(name, True, due)
            continue
        try:
            made += await db.schedules.fire(name, due, ticks, following)
        except DatabaseError as error:
            if error.about_everything:
                raise
            await _refused(db, name, error.message)
            await db.schedules.fire(name, due, [], following)  # otherwise it would block the others forever
    return made


async def _refused(db: Database, name: str, reason: str) -> None:
    log.error("a schedule cannot be fired", schedule=name, reason=reason)
    await db.events.note("schedule.refused", details={"schedule": name, "reason": reason})


async def _now(db: Database) -> datetime:
    row = await db.fetch_one("SELECT shiftboss.now() AS now")
    assert row is not None
    now: datetime = row["now"]
    return now
