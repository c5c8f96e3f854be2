"""Logs of tasks, as pages and as a live stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import orjson
from fastapi import Header, Query
from fastapi.responses import StreamingResponse
from pydantic import Field

from shiftboss.db import Row
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Limit, Out, event_stream, make_router
from shiftboss.extensions.admin.backend import HIDDEN, At, Backend
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.errors import NotFound

router = make_router("tasks")

Level = Literal["debug", "info", "warning", "error", "critical"]
After = Annotated[int, Query(ge=0, le=2**63 - 1, description="only lines with a larger ID")]


class LogLine(Out):
    id: int = Field(description="increases with time, with gaps")
    attempt: int
    step: str | None = Field(description="name#ordinal of the step that logged it")
    at: datetime
    level: str
    logger: str
    message: str
    dropped: int = Field(description="if not 0, this line stands for so many lines that were dropped")


class LogPage(Out):
    items: list[LogLine]
    next: int | None = Field(description="`after` of the next page; null on the last page")


@router.get("/tasks/{id}/logs", responses=responses(404))
async def logs(
    id: UUID, admin: At, who: Caller, after: After = 0, limit: Limit = 200, level: Level = "debug"
) -> LogPage:
    """List the log lines of a task, oldest first."""
    await _require(admin, id)
    rows = await admin.db.logs.read(id, after, limit, _number(level))
    items = [LogLine.model_validate(_shown(admin, row)) for row in rows]
    return LogPage(items=items, next=rows[-1]["id"] if len(rows) == limit else None)


@router.get("/tasks/{id}/logs/stream", response_class=StreamingResponse, responses=responses(404))
async def stream(
    id: UUID,
    admin: At,
    who: Caller,
    level: Level = "debug",
    last: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**63 - 1)] = None,
) -> StreamingResponse:
    """Stream log lines as server-sent `line` events until the task ends. Last-Event-ID resumes the stream."""
    await _require(admin, id)
    return event_stream(_events(admin, id, last or 0, _number(level)))


async def _events(admin: Backend, id: UUID, after: int, level: int) -> AsyncIterator[bytes]:
    async for row in admin.db.logs.follow(id, after, level):
        yield b"id: %d\nevent: line\ndata: %s\n\n" % (row["id"], orjson.dumps(_shown(admin, row)))
    yield b"event: end\ndata: {}\n\n"


def _shown(admin: Backend, row: Row) -> Row:
    # A message may quote payloads.
    return row | {"message": HIDDEN} if admin.hides else row


def _number(level: Level) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


async def _require(admin: Backend, id: UUID) -> None:
    if await admin.db.steps.status(id) is None:
        raise NotFound(f"task {id} does not exist", hint="it may have been pruned")
