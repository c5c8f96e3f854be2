"""Tasks: find, look into, enqueue, cancel, retry, one or many."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Depends, Query
from pydantic import AwareDatetime, Field

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import Cursor, FilterText, In, Limit, Name, Out, Text, make_router
from shiftboss.admin.desk import At, Desk
from shiftboss.admin.problems import responses
from shiftboss.db.insights import TaskFilter
from shiftboss.model.errors import NotFound
from shiftboss.model.task import NewTask

router = make_router("tasks")

TaskStatus = Literal["Queued", "In Progress", "Complete", "Failed", "Cancelled"]
HIDDEN = "(hidden)"


class Task(Out):
    id: UUID
    status: TaskStatus
    task_type: str
    queue: str
    priority: int
    params_preview: str | None = Field(description="the beginning of the parameters")
    attempts: int
    max_attempts: int
    worker_id: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    run_at: datetime | None
    error_message: str | None
    wait_reason: str | None
    progress: int | None
    progress_message: str | None
    run_id: UUID | None
    tenant: str | None
    cancelling: bool


class TaskPage(Out):
    items: list[Task]
    next: str | None = Field(description="cursor of the next page; a page may be short and still have one")


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


class TaskDetail(Out):
    id: UUID
    status: TaskStatus
    task_type: str
    queue: str
    priority: int
    params: Any
    result_data: Any
    attempts: int
    max_attempts: int
    worker_id: str | None
    last_worker_id: str | None
    created_at: datetime
    generation_started_at: datetime | None
    generation_processed_at: datetime | None
    run_at: datetime | None
    deadline: datetime | None
    error_message: str | None
    progress: int | None
    progress_message: str | None
    depends_on: list[UUID] | None
    run_id: UUID | None
    tenant: str | None
    attempts_made: list[Attempt]
    why: list[Why]


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
    created: bool = Field(description="false: a live task has the same dedup_key, this is its id")


class Selection(In):
    """Tasks by id, or by filter."""

    ids: list[UUID] | None = Field(default=None, max_length=10_000)
    status: TaskStatus | None = Field(default=None, examples=["Failed"])
    task_type: Name | None = None
    queue: Name | None = None
    worker_id: Name | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    text: Text | None = None

    def filter(self) -> TaskFilter:
        return TaskFilter(**self.model_dump(exclude={"ids"}))


class Bulk(Out):
    matched: int = Field(description="how many tasks were meant, at most 10,000 at a time")
    changed: int = Field(description="how many it made a difference to")


def _wanted(
    status: TaskStatus | None = None,
    task_type: FilterText = None,
    queue: FilterText = None,
    worker_id: FilterText = None,
    run_id: UUID | None = None,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    text: Annotated[str | None, Query(max_length=1000, description="words in the parameters")] = None,
) -> TaskFilter:
    return TaskFilter(
        status=status,
        task_type=task_type,
        queue=queue,
        worker_id=worker_id,
        run_id=run_id,
        since=since,
        until=until,
        text=text,
    )


@router.get("/tasks")
async def tasks(
    desk: At,
    who: Caller,
    wanted: Annotated[TaskFilter, Depends(_wanted)],
    cursor: Cursor = None,
    limit: Limit = 50,
) -> TaskPage:
    """Tasks by filter, newest first; pages stay in place while tasks arrive."""
    page = await desk.db.insights.tasks.page(desk.searchable(wanted), cursor, limit)
    for row in page.items:
        if desk.settings.admin.hide_payloads:
            row["params_preview"] = HIDDEN
    return TaskPage(items=page.items, next=page.next)


@router.post("/tasks", status_code=201)
async def enqueue(task: Enqueue, desk: At, who: Caller) -> Enqueued:
    """Put a task into the queue."""
    made = await desk.commands.enqueue(who, NewTask(**task.model_dump()))
    return Enqueued(id=made.id, created=made.created)


@router.post("/tasks/cancel")
async def cancel_many(selection: Selection, desk: At, who: Caller) -> Bulk:
    """Cancel every task that is meant."""
    ids = await _ids(desk, who, selection)
    live = [c for c in await desk.commands.cancel_tasks(who, ids) if c.status == "Cancelled" or c.cancelling]
    return Bulk(matched=len(ids), changed=len(live))


@router.post("/tasks/retry")
async def retry_many(selection: Selection, desk: At, who: Caller) -> Bulk:
    """Start every failed or cancelled task that is meant over."""
    ids = await _ids(desk, who, selection)
    return Bulk(matched=len(ids), changed=len(await desk.commands.retry_tasks(who, ids)))


@router.get("/tasks/{id}", responses=responses(404))
async def task(id: UUID, desk: At, who: Caller) -> TaskDetail:
    """One task with its attempts, and why it waits if it does."""
    return await _detail(desk, id)


@router.post("/tasks/{id}/cancel", responses=responses(404, 409))
async def cancel(id: UUID, desk: At, who: Caller) -> TaskDetail:
    """End it now if it waits; ask its worker to stop if it runs."""
    await desk.commands.cancel_tasks(who, [id])
    return await _detail(desk, id)


@router.post("/tasks/{id}/retry", responses=responses(404, 409))
async def retry(id: UUID, desk: At, who: Caller) -> TaskDetail:
    """Start a failed or cancelled task over."""
    await desk.commands.retry_tasks(who, [id])
    return await _detail(desk, id)


async def _ids(desk: Desk, who: Caller, selection: Selection) -> list[UUID]:
    if selection.ids is not None:
        return selection.ids
    return await desk.commands.matching(who, desk.searchable(selection.filter()))


async def _detail(desk: Desk, id: UUID) -> TaskDetail:
    row = await desk.db.insights.tasks.detail(id)
    if row is None:
        raise NotFound(f"there is no task {id}", hint="it may have been pruned")
    if desk.settings.admin.hide_payloads:
        row |= {"params": HIDDEN, "result_data": HIDDEN}
    return TaskDetail.model_validate(row)
