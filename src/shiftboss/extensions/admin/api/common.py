"""Types and models that the routers share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shiftboss.extensions.admin.problems import responses

PREFIX = "/api/v1/admin"

# PostgreSQL cannot store the NUL character.
NO_NUL = r"^[^\x00]*$"
Text = Annotated[str, StringConstraints(max_length=1000, pattern=NO_NUL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
PathName = Annotated[str, Path(min_length=1, max_length=200, pattern=NO_NUL)]
FilterText = Annotated[str | None, Query(max_length=1000, pattern=NO_NUL)]
Limit = Annotated[int, Query(ge=1, le=500)]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the previous page")]


class Out(BaseModel):
    """A response made from a row. Columns that are not declared are left out."""

    model_config = ConfigDict(extra="ignore")


class In(BaseModel):
    """A request body. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Done(Out):
    """The result of a command."""

    changed: list[str] = Field(description="names or IDs of the changed objects")


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Return server-sent events that no proxy buffers."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def make_router(tag: str, prefix: str = PREFIX, **more: Any) -> APIRouter:
    return APIRouter(prefix=prefix, tags=[tag], responses=responses(422), **more)
