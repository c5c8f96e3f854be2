"""Vectorizers: how each stands, its errors, pause, resume, retry."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Path

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import Done, Limit, Out, make_router
from shiftboss.admin.desk import At
from shiftboss.admin.problems import responses

router = make_router("vectorizers")

Id = Annotated[int, Path(ge=1, le=2**31 - 1)]


class Vectorizer(Out):
    id: int
    name: str
    state: str
    provider: str | None
    model: str | None
    dimensions: int | None
    pending: int
    retrying: int
    failed: int
    rows_per_second: float | None
    time_left: timedelta | None
    deferred_until: datetime | None
    defer_reason: str | None
    success_count: int | None
    error_count: int | None
    last_success_at: datetime | None
    last_error_at: datetime | None
    last_error_message: str | None


class VectorizerError(Out):
    vectorizer_id: int
    name: str
    key: Any
    step: str
    reason: str
    attempts: int
    state: str
    failed_at: datetime


@router.get("/vectorizers")
async def vectorizers(desk: At, who: Caller) -> list[Vectorizer]:
    """Every vectorizer with a true count of what is pending."""
    return [Vectorizer.model_validate(row) for row in await desk.db.vectorizers.status()]


@router.get("/vectorizers/{id}/errors", responses=responses(404))
async def errors(id: Id, desk: At, who: Caller, limit: Limit = 100) -> list[VectorizerError]:
    """Rows that could not be embedded, the latest first."""
    return [VectorizerError.model_validate(row) for row in await desk.db.vectorizers.errors(id, limit)]


@router.post("/vectorizers/{id}/pause", responses=responses(404))
async def pause(id: Id, desk: At, who: Caller) -> Done:
    """It queues changes but embeds nothing."""
    await desk.commands.pause_vectorizer(who, id)
    return Done(changed=[str(id)])


@router.post("/vectorizers/{id}/resume", responses=responses(404))
async def resume(id: Id, desk: At, who: Caller) -> Done:
    """It embeds again."""
    await desk.commands.resume_vectorizer(who, id)
    return Done(changed=[str(id)])


@router.post("/vectorizers/{id}/retry", responses=responses(404))
async def retry(id: Id, desk: At, who: Caller) -> Done:
    """Put its failed rows back."""
    await desk.commands.retry_vectorizer(who, id)
    return Done(changed=[str(id)])
