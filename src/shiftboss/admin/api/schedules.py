"""Schedules: what is enqueued again and again."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import Out, make_router
from shiftboss.admin.desk import At

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
