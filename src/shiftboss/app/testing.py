"""Queries of the test kit: enqueued tasks and due schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from shiftboss.app.calls import Call
from shiftboss.app.task import Task
from shiftboss.db import Database
from shiftboss.leader.schedules import next_tick

#: How many enqueued tasks a failed assertion lists.
SHOWN = 10

What = Task[..., Any] | Call[Any] | str


async def enqueued(db: Database, task: Task[..., Any] | str | None = None) -> list[dict[str, Any]]:
    """Return all tasks, or those of one type, in the order in which they were enqueued."""
    name = task.name if isinstance(task, Task) else task
    return await db.fetch(
        "SELECT * FROM public.tasks WHERE %(name)s::text IS NULL OR task_type = %(name)s"
        " ORDER BY created_at, id",
        {"name": name},
    )


async def assert_enqueued(db: Database, what: What, times: int | None, terms: dict[str, Any]) -> None:
    """Raise AssertionError unless a matching task was enqueued `times` times (None: at least once)."""
    name = what if isinstance(what, str) else what.handler.name
    wanted = terms | ({"params": what.params} if isinstance(what, Call) else {})
    of_type = await enqueued(db, name)
    found = [row for row in of_type if all(row[column] == value for column, value in wanted.items())]
    if len(found) == times or (times is None and found):
        return
    often = "at least once" if times is None else f"{times} times"
    listed = "".join(f"\n  {_summary(row, wanted)}" for row in of_type[:SHOWN]) or " none"
    asked = "".join(f" {column}={value!r}" for column, value in wanted.items())
    raise AssertionError(
        f"{name}{asked} should have been enqueued {often}, but was enqueued {len(found)} times;"
        f" tasks of this type:{listed}"
    )


def _summary(row: dict[str, Any], wanted: dict[str, Any]) -> str:
    return " ".join(f"{column}={row[column]!r}" for column in {"params": None, "status": None} | wanted)


async def next_due(db: Database) -> datetime | None:
    """Return when the next schedule fires."""
    row = await db.fetch_one("SELECT min(next_tick) AS tick FROM shiftboss.schedules WHERE NOT paused")
    return row["tick"] if row else None


async def restart_schedules(db: Database, now: datetime) -> None:
    """Continue every schedule from `now`, skipping ticks before it."""
    for row in await db.schedules.all():
        tick = next_tick(row["cron"], row["timezone"], now)
        await db.schedules.set_paused(row["name"], row["paused"], tick)
