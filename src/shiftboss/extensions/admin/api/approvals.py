"""Questions that tasks ask people."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, StringConstraints

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import NO_NUL, In, Limit, Out, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses

router = make_router("approvals")

StepName = Annotated[str, StringConstraints(min_length=1, max_length=600, pattern=NO_NUL)]


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


@router.get("/approvals")
async def approvals(
    admin: At, who: Caller, task_id: UUID | None = None, limit: Limit = 100
) -> list[Approval]:
    """List open questions, oldest first."""
    return [Approval.model_validate(row) for row in await admin.db.steps.approvals(task_id, limit)]


@router.post("/tasks/{id}/answer", responses=responses(404, 409))
async def answer(id: UUID, given: Answer, admin: At, who: Caller) -> Approval:
    """Answer a task's question, which resumes the task. The answer must match the schema."""
    return Approval.model_validate(await admin.commands.answer(who, id, given.answer, given.step))
