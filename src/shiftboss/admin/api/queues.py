"""Queues: depth, age, pause, limits."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import Done, In, Out, PathName, Text, make_router
from shiftboss.admin.desk import At

router = make_router("queues")


class Queue(Out):
    name: str
    queued: int
    ready: int = Field(description="could be taken now")
    running: int
    oldest_seconds: float | None
    workers: int
    paused: bool
    pause_reason: str | None
    paused_at: datetime | None
    max_running: int | None
    rate: int | None
    rate_seconds: float | None


class Pause(In):
    reason: Text | None = None


class Limits(In):
    """Over the whole fleet; without any figure the limits are taken away."""

    max_running: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(default=None, examples=[10])
    rate: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    rate_seconds: Annotated[float, Field(gt=0.001, le=86_400)] = 60.0


@router.get("/queues")
async def queues(desk: At, who: Caller) -> list[Queue]:
    """Every queue that has tasks, workers, a pause or a limit."""
    return [Queue.model_validate(row) for row in await desk.db.insights.fleet.queues()]


@router.post("/queues/{name}/pause")
async def pause(name: PathName, desk: At, who: Caller, body: Pause | None = None) -> Done:
    """Hold back its tasks."""
    changed = await desk.commands.pause_queue(who, name, body.reason if body else None)
    return Done(changed=[name] if changed else [])


@router.post("/queues/{name}/resume")
async def resume(name: PathName, desk: At, who: Caller) -> Done:
    """Let its tasks go on."""
    return Done(changed=[name] if await desk.commands.resume_queue(who, name) else [])


@router.put("/queues/{name}/limits")
async def limit(name: PathName, limits: Limits, desk: At, who: Caller) -> Done:
    """How many of its tasks may run at once, and how many may start in a while."""
    period = timedelta(seconds=limits.rate_seconds) if limits.rate else None
    await desk.commands.limit_queue(who, name, limits.max_running, limits.rate, period)
    return Done(changed=[name])
