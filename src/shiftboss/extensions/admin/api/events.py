"""Events, as a list and as a live stream; webhooks, which become events; questions that tasks ask people."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field, StringConstraints

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import (
    NO_NUL,
    FilterText,
    In,
    Limit,
    Name,
    Out,
    PathName,
    Text,
    event_stream,
    make_router,
)
from shiftboss.extensions.admin.backend import At, Backend
from shiftboss.extensions.admin.problems import Unauthorized, responses
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import ConfigError, NotFound, UsageError

router = make_router("events")
hooks = APIRouter(tags=["events"])
approvals = make_router("approvals")

BEAT = 15.0
#: The allowed difference between the clocks of a webhook in seconds, as its specification recommends.
TOLERANCE = 300
StepName = Annotated[str, StringConstraints(min_length=1, max_length=600, pattern=NO_NUL)]


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
    return event_stream(_flow(admin, request, last_event_id))


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
                if not await admin.access.still_allows(request):
                    return
                yield b": keep-alive\n\n"
                due = time.monotonic() + BEAT


@hooks.post("/hooks/{key}", status_code=202, responses=responses(404, 422))
async def receive(
    key: PathName,
    request: Request,
    admin: At,
    webhook_id: Annotated[Text, Header()],
    webhook_timestamp: Annotated[int, Header()],
    webhook_signature: Annotated[Text, Header()],
) -> Sent:
    """Send the event `hook:KEY` with the body as payload, signed as described by standardwebhooks.com.

    A repeated delivery with the same webhook-id has no effect.
    """
    secret = AdminSettings.of(admin.settings).webhook_secret
    if secret is None:
        raise NotFound("webhooks are off", hint="set SHIFTBOSS_ADMIN_WEBHOOK_SECRET")
    body = await request.body()
    if abs(time.time() - webhook_timestamp) > TOLERANCE:
        raise Unauthorized("the delivery is too old, or the sender's clock is wrong")
    signed = f"{webhook_id}.{webhook_timestamp}.".encode() + body
    if not _signed(secret.get_secret_value(), signed, webhook_signature):
        raise Unauthorized("the signature is wrong")
    try:
        payload = orjson.loads(body) if body else None
    except ValueError as error:
        raise UsageError(f"the body is not JSON: {error}") from None
    who = Principal(f"hook:{key}", Role.OPERATOR, source="webhook")
    delivery = uuid5(NAMESPACE_URL, f"shiftboss:{key}:{webhook_id}")
    return Sent(woken=await admin.commands.send_event(who, f"hook:{key}", payload, id=delivery))


def _signed(secret: str, signed: bytes, given: str) -> bool:
    """Whether one of the given signatures is valid. A sender that rotates its secret sends several."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise ConfigError(
            "admin.webhook_secret is not base64", hint="use whsec_ and 24 to 64 random bytes in base64"
        ) from None
    ours = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return any(hmac.compare_digest(ours.encode(), one.encode()) for one in given.split(" "))


class Approval(Out):
    task_id: UUID
    task_type: str
    queue: str
    tenant: str | None
    name: str = Field(examples=["approval"])
    ordinal: int = Field(description="1 for the first wait with this name")
    question: str = Field(examples=["Publish it?"])
    json_schema: Any = Field(alias="schema", description="the JSON Schema of the answer; null: any JSON")
    asked_at: datetime
    until: datetime | None


class Answer(In):
    answer: Any = Field(description="a value that matches the schema", examples=[{"ok": True}])
    step: StepName | None = Field(
        default=None, description="name or name#ordinal; required if the task asks several questions"
    )


@approvals.get("/approvals")
async def questions(
    admin: At, who: Caller, task_id: UUID | None = None, limit: Limit = 100
) -> list[Approval]:
    """List open questions, oldest first."""
    return [Approval.model_validate(row) for row in await admin.db.steps.approvals(task_id, limit)]


@approvals.post("/tasks/{id}/answer", responses=responses(404, 409))
async def answer(id: UUID, given: Answer, admin: At, who: Caller) -> Approval:
    """Answer a task's question, which resumes the task. The answer must match the schema."""
    return Approval.model_validate(await admin.commands.answer(who, id, given.answer, given.step))
