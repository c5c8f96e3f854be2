"""HTTP API of vectorizers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path, Query
from pydantic import Field

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import NO_NUL, Done, In, Limit, Name, Out, Text, make_router
from shiftboss.extensions.admin.backend import At, Backend
from shiftboss.extensions.admin.problems import responses
from shiftboss.extensions.ai.engines import engine_of
from shiftboss.extensions.vectorizer.model import Chunking, IndexMethod
from shiftboss.extensions.vectorizer.operations import VectorizerOperations
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.model.errors import DatabaseError, UsageError

router = make_router("vectorizers")

Mode = Literal["vector", "hybrid", "text"]
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
    index_state: str


class Found(Out):
    distance: float | None
    score: float
    key: dict[str, Any]
    chunk_seq: int
    chunk: str
    source: dict[str, Any]


class Change(In):
    """Settings of a vectorizer. Omitted ones keep their value, or get their default."""

    columns: list[Name] | None = Field(default=None, min_length=1, max_length=100)
    template: Text | None = Field(default=None, description="`$column`, `${any column}`, `$chunk`")
    chunking: Chunking | None = None
    chunk_size: int | None = Field(default=None, ge=1, le=1_000_000)
    chunk_overlap: int | None = Field(default=None, ge=0, le=1_000_000)
    separators: list[Text] | None = Field(default=None, min_length=1, max_length=100)
    provider: Name | None = None
    model: Name | None = None
    dimensions: int | None = Field(default=None, ge=1, le=16_000)
    base_url: Text | None = Field(default=None, description="another server with the provider's protocol")
    api_key_name: Text | None = Field(default=None, description="environment variable that holds the key")
    index_method: IndexMethod | None = None
    index_opclass: Name | None = None
    index_options: dict[str, int] | None = Field(default=None, description="m, ef_construction; or lists")
    index_min_rows: int | None = Field(default=None, ge=0, le=2**31 - 1)
    text_search: Text | None = Field(default=None, description="configuration for a full-text index")
    schedule: timedelta | None = Field(default=None, description="minimum time between runs")
    batch_size: int | None = Field(default=None, ge=1, le=10_000)
    concurrency: int | None = Field(default=None, ge=1, le=1_000)


class NewVectorizer(Change):
    source: Name = Field(description="a table with a primary key, with its schema if needed")
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
async def vectorizers(admin: At, who: Caller) -> list[Vectorizer]:
    """List all vectorizers with exact counts of pending rows."""
    return [Vectorizer.model_validate(row) for row in await admin.reads.family(Vectorizers).status()]


@router.post("/vectorizers", status_code=201, responses=responses(404, 409, 503))
async def create(new: NewVectorizer, admin: At, who: Caller) -> Vectorizer:
    """Create a vectorizer for a table."""
    with _usage_errors():
        made = await admin.use(VectorizerOperations).create_vectorizer(who, new.source, _given(new))
    return await _one(admin, made)


@router.get("/vectorizers/{id}", responses=responses(404))
async def vectorizer(id: Id, admin: At, who: Caller) -> Vectorizer:
    return await _one(admin, id)


@router.patch("/vectorizers/{id}", responses=responses(404, 409, 503))
async def update(id: Id, change: Change, admin: At, who: Caller) -> Vectorizer:
    """Change settings. If vectors change, searches use the old ones until all new ones are ready."""
    with _usage_errors():
        await admin.use(VectorizerOperations).update_vectorizer(who, id, _given(change))
    return await _one(admin, id)


@router.delete("/vectorizers/{id}", status_code=204, responses=responses(404))
async def drop(id: Id, admin: At, who: Caller, everything: bool = False) -> None:
    """Drop a vectorizer. With `everything`, its vectors and view are deleted as well."""
    await admin.use(VectorizerOperations).drop_vectorizer(who, id, everything)


async def _one(admin: Backend, id: int) -> Vectorizer:
    [row] = await admin.db.family(Vectorizers).status(id)
    return Vectorizer.model_validate(row)


def _given(body: Change) -> dict[str, Any]:
    return body.model_dump(mode="json", exclude={"source"}, exclude_none=True, exclude_unset=True)


@contextmanager
def _usage_errors(*more: str) -> Iterator[None]:
    """Report wrong names of tables, columns and schemas as errors of the caller."""
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate in ("42P01", "42703", "42809", "42701", "42601", "42602", "3F000", *more):
            raise UsageError(error.message, hint=error.hint) from error
        raise


@router.get("/vectorizers/{id}/search", responses=responses(404, 503))
async def search(
    id: Id,
    query: Annotated[str, Query(min_length=1, max_length=10_000, pattern=NO_NUL)],
    admin: At,
    who: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    mode: Mode = "vector",
    filter: Annotated[
        str | None,
        Query(
            max_length=10_000, pattern=NO_NUL, description='JSON, like `{"lang": "en", "hits": {">=": 5}}`'
        ),
    ] = None,
) -> list[Found]:
    """Search for the best matching chunks by meaning, by words, or by both."""
    from shiftboss.extensions.vectorizer.search import search

    with _usage_errors("42883"):
        found = await search(
            admin.db,
            await engine_of(admin.db, admin.settings),
            id,
            query,
            limit,
            mode=mode,
            filter=_conditions(filter),
        )
    return [Found.model_validate(row) for row in found]


def _conditions(text: str | None) -> dict[str, Any] | None:
    try:
        given = None if text is None else orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"filter is not JSON: {error}", hint='write it like {"lang": "en"}') from error
    if not isinstance(given, dict | None):
        raise UsageError("filter is not a JSON object", hint='write it like {"lang": "en"}')
    return given


@router.get("/vectorizers/{id}/errors", responses=responses(404))
async def errors(id: Id, admin: At, who: Caller, limit: Limit = 100) -> list[VectorizerError]:
    """List the rows that could not be embedded, latest first."""
    return [
        VectorizerError.model_validate(row) for row in await admin.db.family(Vectorizers).errors(id, limit)
    ]


@router.post("/vectorizers/{id}/pause", responses=responses(404))
async def pause(id: Id, admin: At, who: Caller) -> Done:
    """Pause a vectorizer: changes are queued, but not embedded."""
    await admin.use(VectorizerOperations).pause_vectorizer(who, id)
    return Done(changed=[str(id)])


@router.post("/vectorizers/{id}/resume", responses=responses(404))
async def resume(id: Id, admin: At, who: Caller) -> Done:
    """Resume a paused or deferred vectorizer."""
    await admin.use(VectorizerOperations).resume_vectorizer(who, id)
    return Done(changed=[str(id)])


@router.post("/vectorizers/{id}/retry", responses=responses(404))
async def retry(id: Id, admin: At, who: Caller) -> Done:
    """Put the failed rows back into the queue."""
    await admin.use(VectorizerOperations).retry_vectorizer(who, id)
    return Done(changed=[str(id)])
