"""Schedules, which enqueue tasks at set times."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from shiftboss.db import Row
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Done, In, Name, Out, PathName, make_router
from shiftboss.extensions.admin.backend import HIDDEN, At, Backend
from shiftboss.extensions.admin.problems import responses
from shiftboss.leader.schedules import Cron, Missed, task

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


class PutSchedule(In):
    cron: Name = Field(examples=["0 3 * * *"])
    task_type: Name = Field(examples=["cleanup"])
    params: dict[str, Any] = Field(default_factory=dict, examples=[{"days": 7}])
    queue: Name | None = None
    priority: Annotated[int, Field(ge=0, le=100)] | None = None
    tenant: Name | None = None
    requires: dict[str, Any] | None = Field(default=None, examples=[{"gpu": True}])
    timezone: Name = Field(default="UTC", examples=["Europe/Madrid"])
    missed: Missed = Field(default="latest", description="what to do with missed ticks")


@router.get("/schedules")
async def schedules(admin: At, who: Caller) -> list[Schedule]:
    """List all schedules with their next and last ticks."""
    return [_shown(admin, row) for row in await admin.reads.schedules.all()]


@router.put("/schedules/{name}", responses=responses(404))
async def put(name: PathName, body: PutSchedule, admin: At, who: Caller) -> Schedule:
    """Create or change a schedule. Its next tick changes only if its times change."""
    fields = body.model_dump(exclude={"cron", "timezone", "missed"})
    cron = Cron(name=name, cron=body.cron, task=task(**fields), timezone=body.timezone, missed=body.missed)
    return _shown(admin, await admin.commands.put_schedule(who, cron))


def _shown(admin: Backend, row: Row) -> Schedule:
    if admin.hides:
        row["task"] |= {"params": HIDDEN}
    return Schedule.model_validate(row)


@router.post("/schedules/{name}/pause", responses=responses(404))
async def pause(name: PathName, admin: At, who: Caller) -> Done:
    """Pause a schedule. Ticks that are due while it is paused are skipped."""
    await admin.commands.pause_schedule(who, name)
    return Done(changed=[name])


@router.post("/schedules/{name}/resume", responses=responses(404))
async def resume(name: PathName, admin: At, who: Caller) -> Done:
    """Resume a schedule with its next tick."""
    await admin.commands.resume_schedule(who, name)
    return Done(changed=[name])


@router.delete("/schedules/{name}", status_code=204, responses=responses(404))
async def remove(name: PathName, admin: At, who: Caller) -> None:
    """Remove a schedule."""
    await admin.commands.remove_schedule(who, name)
