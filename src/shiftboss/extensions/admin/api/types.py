"""Task types with the JSON Schema of their arguments, as published by workers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Out, PathName, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.errors import NotFound

router = make_router("task types")


class TaskType(Out):
    task_type: str
    arguments: dict[str, Any] = Field(alias="schema", description="JSON Schema (2020-12) of `params`")
    version: str | None = Field(description="version of the handler that published it")
    worker_id: str = Field(description="the worker that published it")
    published_at: datetime = Field(description="when this schema was first published")


@router.get("/task-types")
async def task_types(admin: At, who: Caller) -> list[TaskType]:
    """List all task types that workers have published."""
    return [TaskType.model_validate(row) for row in await admin.commands.task_types(who)]


@router.get("/task-types/{name}", responses=responses(404))
async def task_type(name: PathName, admin: At, who: Caller) -> TaskType:
    """Return one task type."""
    row = await admin.db.schemas.get(name)
    if row is None:
        raise NotFound(f"task type {name!r} is unknown", hint="workers publish task types when they start")
    return TaskType.model_validate(row)
