"""Tasks: list, inspect, enqueue, cancel and retry them. Task types with the schemas of their arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
from fastapi import Header, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, BaseModel, Field

from shiftboss.db.insights import TaskFilter
from shiftboss.db.stream import follow
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import (
    NO_NUL,
    In,
    Name,
    Out,
    PathName,
    Text,
    event_stream,
    make_router,
)
from shiftboss.extensions.admin.backend import HIDDEN, At, Backend
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.errors import NotFound, UsageError
from shiftboss.model.task import NewTask

router = make_router("tasks")
types = make_router("task types")

TaskStatus = Literal["Queued", "In Progress", "Complete", "Failed", "Cancelled"]


class _Task(Out):
    id: UUID
    status: TaskStatus
    task_type: str
    queue: str
    priority: int
    attempts: int
    max_attempts: int
    worker_id: str | None
    created_at: datetime
    run_at: datetime | None
    error_message: str | None
    progress: int | None
    progress_message: str | None
    run_id: UUID | None
    tenant: str | None


class Task(_Task):
    params_preview: str | None = Field(description="the beginning of the params")
    started_at: datetime | None
    ended_at: datetime | None
    wait_reason: str | None
    cancelling: bool


class TaskPage(Out):
    items: list[Task]
    next: str | None = Field(description="cursor of the next page; a short page can also have one")


class Attempt(Out):
    attempt: int
    worker_id: str | None
    started_at: datetime | None
    ended_at: datetime | None
    outcome: str
    error: str | None


class Why(Out):
    reason: str
    detail: str
    advice: str


class TaskDetail(_Task):
    params: Any
    result_data: Any
    last_worker_id: str | None
    generation_started_at: datetime | None
    generation_processed_at: datetime | None
    deadline: datetime | None
    depends_on: list[UUID] | None
    attempts_made: list[Attempt]
    why: list[Why]


class TaskType(Out):
    task_type: str
    arguments: dict[str, Any] = Field(alias="schema", description="JSON Schema (2020-12) of `params`")
    version: str | None = Field(description="version of the handler that published it")
    worker_id: str = Field(description="the worker that published it")
    published_at: datetime = Field(description="when this schema was first published")


class Step(Out):
    kind: Literal["step", "sleep", "event", "child"]
    name: str
    ordinal: int
    state: Literal["waiting", "done", "timeout", "failed", "cancelled"]
    result: Any
    attempt: int
    started_at: datetime
    ended_at: datetime | None
    until: datetime | None
    child_id: UUID | None
    question: str | None = Field(description="the question for a person")
    json_schema: Any = Field(alias="schema", description="the JSON Schema of the answer; null: any JSON")
    answered_by: str | None


class Enqueue(In):
    task_type: Name = Field(examples=["resize"])
    params: dict[str, Any] = Field(default_factory=dict, examples=[{"id": 7}])
    queue: Name | None = None
    priority: Annotated[int, Field(ge=0, le=100)] | None = Field(
        default=None, description="Low 1, Normal 5, High 10, Urgent 15"
    )
    run_at: AwareDatetime | None = None
    dedup_key: Text | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1000)] | None = None


class Enqueued(Out):
    id: UUID
    created: bool = Field(description="false: this is the ID of a live task with the same dedup_key")
    warning: str | None = Field(
        default=None, description="set if no worker has published the task type, or a key of it needs Python"
    )


class _Filter(BaseModel):
    status: TaskStatus | None = Field(default=None, examples=["Failed"])
    task_type: Text | None = None
    queue: Text | None = None
    worker_id: Text | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    text: Text | None = Field(default=None, description="text in the params")

    def filter(self) -> TaskFilter:
        return TaskFilter(**self.model_dump(exclude={"ids", "cursor", "limit"}))


class Listing(_Filter):
    run_id: UUID | None = None
    cursor: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="`next` of the previous page"
    )
    limit: int = Field(default=50, ge=1, le=500)


class Selection(_Filter, In):
    """Tasks by ID or by filter."""

    ids: list[UUID] | None = Field(default=None, max_length=10_000)


class Bulk(Out):
    matched: int = Field(description="number of matching tasks, at most 10,000 per call")
    changed: int = Field(description="number of tasks that were changed")


@router.get("/tasks")
async def tasks(admin: At, who: Caller, given: Annotated[Listing, Query()]) -> TaskPage:
    """List tasks by filter, newest first. New tasks do not shift later pages."""
    wanted = admin.searchable(given.filter())
    page = await admin.reads.insights.tasks.page(wanted, given.cursor, given.limit)
    hidden = {"params_preview": HIDDEN} if admin.hides else {}
    return TaskPage(items=[Task.model_validate(row | hidden) for row in page.items], next=page.next)


@router.post("/tasks", status_code=201)
async def enqueue(task: Enqueue, admin: At, who: Caller) -> Enqueued:
    """Enqueue a task. Arguments that do not match the schema of its type are refused (422)."""
    made = await admin.commands.enqueue(who, NewTask(**task.model_dump()))
    return Enqueued(**made._asdict())


@router.post("/tasks/cancel")
async def cancel_many(selection: Selection, admin: At, who: Caller) -> Bulk:
    """Cancel all matching tasks."""
    ids = await _ids(admin, who, selection)
    live = [c for c in await admin.commands.cancel_tasks(who, ids) if c.status == "Cancelled" or c.cancelling]
    return Bulk(matched=len(ids), changed=len(live))


@router.post("/tasks/retry")
async def retry_many(selection: Selection, admin: At, who: Caller) -> Bulk:
    """Retry all matching tasks that failed or were cancelled."""
    ids = await _ids(admin, who, selection)
    return Bulk(matched=len(ids), changed=len(await admin.commands.retry_tasks(who, ids)))


@router.get("/tasks/{id}", responses=responses(404))
async def task(id: UUID, admin: At, who: Caller) -> TaskDetail:
    """Return one task with its attempts and, if it waits, the reasons."""
    return await _detail(admin, id)


@router.get("/tasks/{id}/steps", responses=responses(404))
async def steps(id: UUID, admin: At, who: Caller) -> list[Step]:
    """List the steps and waits of a task, oldest first."""
    await _detail(admin, id)
    found = await admin.db.steps.of(id)
    hidden = {"result": HIDDEN} if admin.hides else {}
    return [Step.model_validate({**row, **hidden}) for row in found]


@router.get("/tasks/{id}/stream", response_class=StreamingResponse, responses=responses(404))
async def stream(
    id: UUID,
    admin: At,
    who: Caller,
    last: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**31 - 1)] = None,
) -> StreamingResponse:
    """Stream what a task emits as server-sent events until it ends. Last-Event-ID resumes the stream.

    A `part` event contains JSON. A `restart` event means that the task runs again; it lists parts to discard.
    """
    await _detail(admin, id)
    return event_stream(_parts(admin, id, last or 0))


async def _parts(admin: Backend, id: UUID, after: int) -> AsyncIterator[bytes]:
    async for part in follow(admin.db.steps, id, after):
        restart = part.discard is not None
        shown = {"attempt": part.attempt, "discard": sorted(part.discard or ())} if restart else part.part
        data = orjson.dumps(HIDDEN if admin.hides and not restart else shown)
        event = b"restart" if restart else b"part"
        yield b"id: %d\nevent: %s\ndata: %s\n\n" % (part.number, event, data)
    yield b"event: end\ndata: {}\n\n"


@router.post("/tasks/{id}/cancel", responses=responses(404, 409))
async def cancel(id: UUID, admin: At, who: Caller) -> TaskDetail:
    """Cancel a waiting task, or ask the worker of a running task to stop it."""
    await admin.commands.cancel_tasks(who, [id])
    return await _detail(admin, id)


@router.post("/tasks/{id}/run-now", responses=responses(404, 409))
async def run_now(id: UUID, admin: At, who: Caller) -> TaskDetail:
    """Make a task due that waits for a time. Refuse one that does not (422)."""
    try:
        await admin.commands.run_tasks_now(who, [id])
    except UsageError:
        await _detail(admin, id)  # raises NotFound for an unknown task
        raise
    return await _detail(admin, id)


@router.post("/tasks/{id}/retry", responses=responses(404, 409))
async def retry(
    id: UUID,
    admin: At,
    who: Caller,
    start: Annotated[str | None, Query(alias="from", max_length=600, pattern=NO_NUL)] = None,
    restart: bool = False,
) -> TaskDetail:
    """Retry a failed or cancelled task with its step results, those before `from`, or none (`restart`)."""
    await admin.commands.retry_tasks(who, [id], start, restart=restart)
    return await _detail(admin, id)


async def _ids(admin: Backend, who: Caller, selection: Selection) -> list[UUID]:
    if selection.ids is not None:
        return selection.ids
    return await admin.commands.matching(who, admin.searchable(selection.filter()))


async def _detail(admin: Backend, id: UUID) -> TaskDetail:
    row = await admin.db.insights.tasks.detail(id)
    if row is None:
        raise NotFound(f"task {id} does not exist", hint="it may have been pruned")
    if admin.hides:
        row |= {"params": HIDDEN, "result_data": HIDDEN}
    return TaskDetail.model_validate(row)


@types.get("/task-types")
async def task_types(admin: At, who: Caller) -> list[TaskType]:
    """List all task types that workers have published."""
    return [TaskType.model_validate(row) for row in await admin.commands.task_types(who)]


@types.get("/task-types/{name}", responses=responses(404))
async def task_type(name: PathName, admin: At, who: Caller) -> TaskType:
    """Return one task type."""
    row = await admin.db.schemas.get(name)
    if row is None:
        raise NotFound(f"task type {name!r} is unknown", hint="workers publish task types when they start")
    return TaskType.model_validate(row)
