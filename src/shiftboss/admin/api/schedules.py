"""Schedules: what is enqueued again and again."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import Done, Out, PathName, make_router
from shiftboss.admin.desk import At
from shiftboss.admin.problems import responses

router = make_router("schedules")


class Schedule(Out):
    name: str
    cron: str
    timezone: str
    task: dict[str, Any]
    missed: str
    paused: bool
    next_tick: datetime
    last_tick: datetime | None
    last_task_id: UUID | None


@router.get("/schedules")
async def schedules(desk: At, who: Caller) -> list[Schedule]:
    """Every schedule with its next and last tick."""
    return [Schedule.model_validate(row) for row in await desk.db.schedules.all()]


@router.post("/schedules/{name}/pause", responses=responses(404))
async def pause(name: PathName, desk: At, who: Caller) -> Done:
    """It enqueues nothing; ticks that pass are not made up for."""
    await desk.commands.pause_schedule(who, name)
    return Done(changed=[name])


@router.post("/schedules/{name}/resume", responses=responses(404))
async def resume(name: PathName, desk: At, who: Caller) -> Done:
    """It goes on with its next tick."""
    await desk.commands.resume_schedule(who, name)
    return Done(changed=[name])


@router.delete("/schedules/{name}", status_code=204, responses=responses(404))
async def remove(name: PathName, desk: At, who: Caller) -> None:
    """Forget it."""
    await desk.commands.remove_schedule(who, name)
