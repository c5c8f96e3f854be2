"""Error groups, one per cause, which can be retried as a whole."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Path
from pydantic import AwareDatetime, Field

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Limit, Out, make_router
from shiftboss.extensions.admin.backend import HIDDEN, At, Backend
from shiftboss.extensions.admin.problems import responses

router = make_router("errors")

GroupId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,12}$", description="ID or its first characters")]


class ErrorGroup(Out):
    id: str
    error_type: str = Field(description="the exception, or the outcome: timeout, lost, crashed")
    place: str | None = Field(description="file and function that raised the exception")
    message: str | None = Field(description="message of the latest failure")
    first_seen: datetime
    last_seen: datetime
    count: int = Field(description="failed attempts")
    task_types: list[str] = Field(description="the latest 20; the same for versions and workers")
    versions: list[str]
    workers: list[str]
    task_id: UUID | None = Field(description="the latest task")


class ErrorDetail(ErrorGroup):
    failed_tasks: list[UUID] = Field(description="tasks that failed with this error, at most 100")


class Retried(Out):
    retried: int


@router.get("/errors")
async def groups(
    admin: At, who: Caller, since: AwareDatetime | None = None, limit: Limit = 50
) -> list[ErrorGroup]:
    """List error groups, latest failure first. They are updated every few seconds."""
    rows = await admin.reads.insights.errors.groups(since, limit)
    return [ErrorGroup.model_validate(row | _hidden(admin)) for row in rows]


@router.get("/errors/{id}", responses=responses(404))
async def group(id: GroupId, admin: At, who: Caller) -> ErrorDetail:
    """Return an error group and its failed tasks."""
    row = await admin.db.insights.errors.group(id)
    members = await admin.db.insights.errors.members(row["id"], 100)
    return ErrorDetail.model_validate(row | _hidden(admin) | {"failed_tasks": members})


@router.post("/errors/{id}/retry", responses=responses(404))
async def retry(id: GroupId, admin: At, who: Caller) -> Retried:
    """Retry the failed tasks of a group."""
    return Retried(retried=len(await admin.commands.retry_errors(who, id)))


def _hidden(admin: Backend) -> dict[str, str]:
    # A message may quote payloads.
    return {"message": HIDDEN} if admin.hides else {}
