"""Slots of supervisors, also under the /api/web/worker paths."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Done, Name, Out, PathName, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.errors import NotFound

web = make_router("documented worker paths", prefix="/api/web/worker")
router = make_router("slots")
UNKNOWN = responses(404)

OneSlot = Annotated[Name | None, Field(description="only this slot")]
SlotStatus = Literal["starting", "healthy", "stopping", "crashed", "failed"]


class SlotState(Out):
    """The state of a slot. Times are whole Unix seconds."""

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
    """List all slots, ordered by component."""
    return [Slot.model_validate(row) for row in await admin.reads.health.slots()]


@web.get("/status")
async def status(admin: At, who: Caller, component: OneSlot = None) -> list[SlotState]:
    """List the state of all slots, or of one."""
    rows = await admin.reads.health.get_all_workers()
    return [_state(row) for row in rows if component in (None, row["component"])]


@web.get("/status/{component}", responses=UNKNOWN)
async def status_of_one(component: PathName, admin: At, who: Caller) -> SlotState:
    """Return the state of one slot."""
    row = await admin.db.health.get_worker(component)
    if row is None:
        raise NotFound(f"slot {component!r} does not exist")
    return _state(row)


@web.post("/restart", responses=UNKNOWN)
@web.post("/restart/{component}", responses=UNKNOWN)
@router.post("/slots/restart", responses=UNKNOWN)
@router.post("/slots/{component}/restart", responses=UNKNOWN)
async def restart(admin: At, who: Caller, component: OneSlot = None) -> list[Restart]:
    """Restart all slots, or one. This resets their restart counts and clears `failed`."""
    return [Restart.model_validate(row) for row in await admin.commands.restart_slots(who, _one(component))]


@web.post("/pause", responses=UNKNOWN)
@web.post("/pause/{component}", responses=UNKNOWN)
@router.post("/slots/pause", responses=UNKNOWN)
@router.post("/slots/{component}/pause", responses=UNKNOWN)
async def pause(admin: At, who: Caller, component: OneSlot = None) -> Done:
    """Pause all slots, or one. They finish their tasks and claim no new ones."""
    return Done(changed=await admin.commands.pause_slots(who, _one(component)))


@web.post("/resume", responses=UNKNOWN)
@web.post("/resume/{component}", responses=UNKNOWN)
@router.post("/slots/resume", responses=UNKNOWN)
@router.post("/slots/{component}/resume", responses=UNKNOWN)
async def resume(admin: At, who: Caller, component: OneSlot = None) -> Done:
    """Resume all slots, or one."""
    return Done(changed=await admin.commands.resume_slots(who, _one(component)))


def _one(component: str | None) -> list[str] | None:
    return None if component is None else [component]


def _state(row: dict[str, object]) -> SlotState:
    return SlotState.model_validate(row | {"last_seen": int(float(str(row["last_seen"])))})
