"""Error groups, one per cause, which can be retried as a whole."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Path
from pydantic import AwareDatetime, Field

from shiftboss.db.insights.rows import ErrorGroupRow
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Limit, Out, make_router
from shiftboss.extensions.admin.backend import HIDDEN, At, Backend
from shiftboss.extensions.admin.problems import responses

router = make_router("errors")

GroupId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,12}$", description="ID or its first characters")]


class ErrorGroup(ErrorGroupRow):
    """Failures of one exception type at one place in the code."""


class ErrorDetail(ErrorGroup):
    failed_tasks: Annotated[list[UUID], Field(description="tasks that failed with this error, at most 100")]


class Retried(Out):
    retried: int


@router.get("/errors")
async def groups(
    admin: At, who: Caller, since: AwareDatetime | None = None, limit: Limit = 50
) -> list[ErrorGroup]:
    """List error groups, latest failure first."""
    return [_shown(admin, row) for row in await admin.reads.insights.errors.groups(since, limit)]


@router.get("/errors/{id}", responses=responses(404))
async def group(id: GroupId, admin: At, who: Caller) -> ErrorDetail:
    """Return an error group and its failed tasks."""
    row = await admin.db.insights.errors.group(id)
    members = await admin.db.insights.errors.members(row["id"], 100)
    return ErrorDetail(**_shown(admin, row), failed_tasks=members)


@router.post("/errors/{id}/retry", responses=responses(404))
async def retry(id: GroupId, admin: At, who: Caller) -> Retried:
    """Retry the failed tasks of a group."""
    return Retried(retried=len(await admin.commands.retry_errors(who, id)))


def _shown(admin: Backend, row: ErrorGroupRow) -> ErrorGroup:
    # A message may quote payloads.
    return {**row, "message": HIDDEN} if admin.hides else row
