"""Vectorizers: how each stands, its errors; make, change, drop, pause, resume, retry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import Field

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import Done, In, Limit, Name, Out, Text, make_router
from shiftboss.admin.desk import At, Desk
from shiftboss.admin.problems import responses
from shiftboss.model.errors import DatabaseError, UsageError

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
    trouble: str | None


class Change(In):
    """What is left out stays as it is, or gets its default."""

    columns: list[Name] | None = Field(default=None, min_length=1, max_length=100)
    template: Text | None = Field(default=None, description="`$column`, `${any column}`, `$chunk`")
    chunking: Literal["sentences", "characters", "none"] | None = None
    chunk_size: int | None = Field(default=None, ge=1, le=1_000_000)
    chunk_overlap: int | None = Field(default=None, ge=0, le=1_000_000)
    provider: Name | None = None
    model: Name | None = None
    dimensions: int | None = Field(default=None, ge=1, le=16_000)
    index_method: Literal["hnsw", "none"] | None = None
    schedule: timedelta | None = Field(default=None, description="work at most once in this time")
    batch_size: int | None = Field(default=None, ge=1, le=10_000)
    concurrency: int | None = Field(default=None, ge=1, le=1_000)


class NewVectorizer(Change):
    source: Name = Field(description="a table with a primary key, with its schema where it needs one")
    name: Name | None = None
    destination: Name | None = None
    view_name: Name | None = None
    enqueue_existing: bool = True
    if_not_exists: bool = False


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


@router.post("/vectorizers", status_code=201, responses=responses(404, 409, 503))
async def create(new: NewVectorizer, desk: At, who: Caller) -> Vectorizer:
    """Let embeddings follow a table."""
    with _meant():
        made = await desk.commands.create_vectorizer(who, new.source, _given(new))
    return await _one(desk, made)


@router.get("/vectorizers/{id}", responses=responses(404))
async def vectorizer(id: Id, desk: At, who: Caller) -> Vectorizer:
    return await _one(desk, id)


@router.patch("/vectorizers/{id}", responses=responses(404, 409, 503))
async def update(id: Id, change: Change, desk: At, who: Caller) -> Vectorizer:
    """Change what is given. Where vectors change, the old ones serve until the new ones are all there."""
    with _meant():
        await desk.commands.update_vectorizer(who, id, _given(change))
    return await _one(desk, id)


@router.delete("/vectorizers/{id}", status_code=204, responses=responses(404))
async def drop(id: Id, desk: At, who: Caller, everything: bool = False) -> None:
    """Follow the table no more. Its vectors stay, unless `everything` is to go."""
    await desk.commands.drop_vectorizer(who, id, everything)


async def _one(desk: Desk, id: int) -> Vectorizer:
    [row] = await desk.db.vectorizers.status(id)
    return Vectorizer.model_validate(row)


def _given(body: Change) -> dict[str, Any]:
    return body.model_dump(mode="json", exclude={"source"}, exclude_none=True, exclude_unset=True)


@contextmanager
def _meant() -> Iterator[None]:
    """A table, column or schema that is not there was named by the caller."""
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate in ("42P01", "42703", "42809", "42701", "42601", "42602", "3F000"):
            raise UsageError(error.message, hint=error.hint) from error
        raise


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
