"""Slots of supervised pools, also under the documented /api/web/worker paths."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Query

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import NO_NUL, Done, Out, PathName, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.errors import NotFound

web = make_router("documented worker paths", prefix="/api/web/worker")
router = make_router("slots")

Component = Annotated[
    str | None, Query(min_length=1, max_length=200, pattern=NO_NUL, description="one slot only")
]
SlotStatus = Literal["starting", "healthy", "stopping", "crashed", "failed"]


class SlotState(Out):
    """The documented shape; times are whole Unix seconds."""

    component: str
    status: SlotStatus
    pid: int | None
    current_job: UUID | None
    restart_count: int
    last_seen: int


class Slot(Out):
    component: str
    queue: str | None
    host: str | None
    member_id: str | None
    status: SlotStatus
    pid: int | None
    current_job: UUID | None
    restart_count: int
    recent_restarts: int
    last_restart: float | None
    last_seen: float
    seconds_since_beat: float
    created_at: float
    paused: bool
    supervised: bool
    error_message: str | None


class Restart(Out):
    component: str
    ordered: bool
    note: str | None


@router.get("/slots")
async def slots(admin: At, who: Caller) -> list[Slot]:
    """Every slot, by component."""
    return [Slot.model_validate(row) for row in await admin.reads.health.slots()]


@web.get("/status")
async def status(admin: At, who: Caller, component: Component = None) -> list[SlotState]:
    """Slots in the documented shape: all, or one."""
    rows = await admin.reads.health.get_all_workers()
    return [_state(row) for row in rows if component in (None, row["component"])]


@web.get("/status/{component}", responses=responses(404))
async def status_of_one(component: PathName, admin: At, who: Caller) -> SlotState:
    """One slot in the documented shape."""
    row = await admin.db.health.get_worker(component)
    if row is None:
        raise NotFound(f"there is no slot {component!r}")
    return _state(row)


@web.post("/restart", responses=responses(404))
@router.post("/slots/restart", responses=responses(404))
async def restart(admin: At, who: Caller, component: Component = None) -> list[Restart]:
    """Restart slots by hand: all, or one. Restart counts begin again, failed is forgiven."""
    return [Restart.model_validate(row) for row in await admin.commands.restart_slots(who, _one(component))]


@web.post("/pause", responses=responses(404))
@router.post("/slots/pause", responses=responses(404))
async def pause(admin: At, who: Caller, component: Component = None) -> Done:
    """All slots, or one, finish their task and claim nothing new."""
    return Done(changed=await admin.commands.pause_slots(who, _one(component)))


@web.post("/resume", responses=responses(404))
@router.post("/slots/resume", responses=responses(404))
async def resume(admin: At, who: Caller, component: Component = None) -> Done:
    """All slots, or one, claim again."""
    return Done(changed=await admin.commands.resume_slots(who, _one(component)))


@web.post("/restart/{component}", responses=responses(404))
@router.post("/slots/{component}/restart", responses=responses(404))
async def restart_one(component: PathName, admin: At, who: Caller) -> list[Restart]:
    """Restart one slot by hand."""
    return await restart(admin, who, component)


@web.post("/pause/{component}", responses=responses(404))
@router.post("/slots/{component}/pause", responses=responses(404))
async def pause_one(component: PathName, admin: At, who: Caller) -> Done:
    """One slot finishes its task and claims nothing new."""
    return await pause(admin, who, component)


@web.post("/resume/{component}", responses=responses(404))
@router.post("/slots/{component}/resume", responses=responses(404))
async def resume_one(component: PathName, admin: At, who: Caller) -> Done:
    """One slot claims again."""
    return await resume(admin, who, component)


def _one(component: str | None) -> list[str] | None:
    return None if component is None else [component]


def _state(row: dict[str, object]) -> SlotState:
    return SlotState.model_validate(row | {"last_seen": int(float(str(row["last_seen"])))})
