"""HTTP API of runs: list, show, cancel."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query
from pydantic import Field

from shiftboss.db import Row
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import FilterText, Limit, Out, make_router
from shiftboss.extensions.admin.backend import At, Backend
from shiftboss.extensions.admin.problems import responses
from shiftboss.extensions.runs.operations import RunOperations
from shiftboss.extensions.runs.store import Runs

router = make_router("runs")

RunStatus = Literal["pending", "running", "finished", "failed"]


class Run(Out):
    id: UUID
    bot: str
    city: str | None
    category: str | None
    status: RunStatus
    progress: int = Field(ge=0, le=100)
    counters: dict[str, Any]
    error_message: str | None
    started_at: datetime | None
    finished_at: datetime | None
    created_at: datetime
    duration_seconds: float | None
    params: dict[str, Any] = Field(description="empty while payloads are hidden")
    task_id: UUID | None
    retry_of: UUID | None
    requested_by: str | None
    message: str | None


class RunPage(Out):
    items: list[Run]
    total: int
    limit: int
    offset: int


@router.get("/workers/runs")
async def runs(
    admin: At,
    who: Caller,
    bot: FilterText = None,
    status: RunStatus | None = None,
    since: datetime | None = None,
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> RunPage:
    """List runs, newest first."""
    name = bot.strip().lower() if bot else None
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    store = admin.reads.family(Runs)
    rows = await store.list_runs(bot=name, status=status, since=since, limit=limit, offset=offset)
    return RunPage(
        items=[_shown(admin, row) for row in rows],
        total=await store.count_runs(bot=name, status=status, since=since),
        limit=limit,
        offset=offset,
    )


@router.get("/workers/runs/{id}", responses=responses(404))
async def run(id: UUID, admin: At, who: Caller) -> Run:
    """Show one run."""
    return await get_run(admin, id)


@router.post("/workers/runs/{id}/cancel", responses=responses(404, 409))
async def cancel(id: UUID, admin: At, who: Caller) -> Run:
    """Cancel a run. A pending run ends at once; a running one ends as failed when its worker stops it."""
    await admin.use(RunOperations).cancel_run(who, id)
    return await get_run(admin, id)


async def get_run(admin: Backend, id: UUID) -> Run:
    return _shown(admin, await admin.db.family(Runs).find(id))


def _shown(admin: Backend, row: Row) -> Run:
    return Run.model_validate(row | {"params": {}} if admin.hides else row)
