"""Events of the fleet, as a list and as a live stream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from shiftboss.extensions.admin.access import COOKIE, Caller
from shiftboss.extensions.admin.api.common import FilterText, In, Limit, Name, Out, make_router
from shiftboss.extensions.admin.backend import At, Backend
from shiftboss.model.errors import ShiftbossError

router = make_router("events")

BEAT = 15.0


class Event(Out):
    id: int
    at: datetime
    kind: str = Field(examples=["worker.lost"])
    worker_id: str | None
    component: str | None
    task_id: UUID | None
    details: dict[str, Any]


class Send(In):
    key: Name = Field(examples=["approval"], description="the key that tasks wait for")
    payload: Any = Field(default=None, examples=[{"ok": True}])
    task_id: UUID | None = Field(default=None, description="send it only to this task")
    id: UUID | None = Field(default=None, description="a second event with the same ID is ignored")


class Sent(Out):
    woken: int = Field(description="number of waits that it ended")


@router.post("/events", status_code=201)
async def send(event: Send, admin: At, who: Caller) -> Sent:
    """Send an event to the tasks that wait for its key now or within a day."""
    return Sent(woken=await admin.commands.send_event(who, event.key, event.payload, event.task_id, event.id))


@router.get("/events")
async def events(
    admin: At,
    who: Caller,
    kind: FilterText = None,
    worker_id: FilterText = None,
    component: FilterText = None,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="only events with a smaller ID")] = None,
    limit: Limit = 50,
) -> list[Event]:
    """List the events of the fleet, newest first."""
    rows = await admin.reads.events.latest(
        limit, worker_id=worker_id, component=component, kind=kind, before=before
    )
    return [Event.model_validate(row) for row in rows]


@router.get(
    "/events/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream(
    request: Request,
    admin: At,
    who: Caller,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**62)] = None,
) -> StreamingResponse:
    """Stream changes as server-sent events: `event` for each new event, `run` for each change of a run.

    A client that reconnects with `Last-Event-ID` first receives the events that it missed.
    """
    return StreamingResponse(
        _flow(admin, request, last_event_id),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _flow(admin: Backend, request: Request, last: int | None) -> AsyncIterator[bytes]:
    with admin.hub.subscribe() as client:
        yield b"retry: 2000\n\n"
        if last is not None:
            for missed in await admin.hub.since(last):
                yield missed.text
        due = time.monotonic() + BEAT
        while not client.lost and not admin.hub.stopping.is_set():
            change = await client.next(due - time.monotonic())
            if change is not None:
                yield change.text
            if time.monotonic() >= due:
                if not await _authorized(admin, request):
                    return
                yield b": keep-alive\n\n"
                due = time.monotonic() + BEAT


async def _authorized(admin: Backend, request: Request) -> bool:
    """Whether the token or session that opened the stream is still valid."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    secret = bearer or request.cookies.get(COOKIE)
    try:
        await admin.access.recognise(secret, admin.access.peer_of(request), request.headers.get("host"))
    except ShiftbossError:
        return False
    return True
