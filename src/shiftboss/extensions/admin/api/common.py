"""What routers share: prefix, kinds of text, and models with rows behind them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shiftboss.extensions.admin.problems import responses

PREFIX = "/api/v1/admin"

# PostgreSQL holds any text but the NUL character.
NO_NUL = r"^[^\x00]*$"
Text = Annotated[str, StringConstraints(max_length=1000, pattern=NO_NUL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
PathName = Annotated[str, Path(min_length=1, max_length=200, pattern=NO_NUL)]
FilterText = Annotated[str | None, Query(max_length=1000, pattern=NO_NUL)]
Limit = Annotated[int, Query(ge=1, le=500)]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]


class Out(BaseModel):
    """An answer, made from a row; columns that it does not name stay inside."""

    model_config = ConfigDict(extra="ignore")


class In(BaseModel):
    """A body; a field that it does not know is an error."""

    model_config = ConfigDict(extra="forbid")


class Done(Out):
    """What a command came to."""

    changed: list[str] = Field(description="what it was done to")


def make_router(tag: str, prefix: str = PREFIX, **more: Any) -> APIRouter:
    return APIRouter(prefix=prefix, tags=[tag], responses=responses(422), **more)
