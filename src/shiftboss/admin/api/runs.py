"""Runs of bots: start, list, look, cancel, retry."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query, Response
from pydantic import Field

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import FilterText, In, Limit, Name, Out, Text, make_router
from shiftboss.admin.desk import At
from shiftboss.admin.problems import responses
from shiftboss.model.errors import NotFound

router = make_router("runs")

RunStatus = Literal["pending", "running", "finished", "failed"]


class StartRun(In):
    """What to run. `params` are the bot's own; see GET bots."""

    bot: Name = Field(examples=["discovery"])
    city: Text | None = Field(default=None, examples=["rotterdam"])
    category: Text | None = Field(default=None, examples=["bakery"])
    params: dict[str, Any] = Field(default_factory=dict, examples=[{}])


class Started(Out):
    run_id: UUID
    bot: str
    city: str | None
    category: str | None
    tracking_available: bool = Field(description="progress can be followed under the run's id")
    created: bool = Field(description="false: the same job was pending or running, this is its run")


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
    params: dict[str, Any]
    task_id: UUID | None
    retry_of: UUID | None
    requested_by: str | None
    message: str | None


class RunPage(Out):
    items: list[Run]
    total: int
    limit: int
    offset: int


class BotInfo(Out):
    name: str
    description: str
    params: dict[str, Any] = Field(description="JSON Schema of the parameters")


class Choices(Out):
    """What a run can be made of."""

    bots: list[BotInfo]
    cities: dict[str, str] = Field(description="name by key", examples=[{"rotterdam": "Rotterdam"}])
    categories: dict[str, str] = Field(description="name by key", examples=[{"bakery": "Bakery"}])
    errors: list[str] = Field(
        description="configuration files that are broken; the last good ones stay in force"
    )


@router.get("/bots")
async def bots(desk: At, who: Caller) -> Choices:
    """Bots with their parameters, cities and categories: what a form is made from."""
    cities, categories = desk.catalog.cities, desk.catalog.categories
    return Choices(
        bots=[BotInfo(name=bot.name, description=bot.description, params=bot.schema()) for bot in desk.bots],
        cities={key: city.name for key, city in cities.items()},
        categories={key: category.name for key, category in categories.items()},
        errors=desk.catalog.errors,
    )


@router.post(
    "/workers/run",
    status_code=201,
    responses={200: {"model": Started, "description": "The same job is under way already"}},
)
async def start(order: StartRun, desk: At, who: Caller, response: Response) -> Started:
    """Start a run. The same job is carried out once at a time: asked for again, its live run comes back."""
    run = await desk.commands.start_run(who, order.bot, order.city, order.category, order.params)
    return await _started(desk, run.id, run.created, response)


@router.get("/workers/runs")
async def runs(
    desk: At,
    who: Caller,
    bot: FilterText = None,
    status: RunStatus | None = None,
    since: datetime | None = None,
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
) -> RunPage:
    """Runs, newest first."""
    name = bot.strip().lower() if bot else None
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    return RunPage(
        items=await desk.db.runs.list_runs(bot=name, status=status, since=since, limit=limit, offset=offset),
        total=await desk.db.runs.count_runs(bot=name, status=status, since=since),
        limit=limit,
        offset=offset,
    )


@router.get("/workers/runs/{id}", responses=responses(404))
async def run(id: UUID, desk: At, who: Caller) -> Run:
    """One run."""
    return await _run(desk, id)


@router.post("/workers/runs/{id}/cancel", responses=responses(404, 409))
async def cancel(id: UUID, desk: At, who: Caller) -> Run:
    """Stop a run: at once while it is pending; one that runs is asked to stop and ends as failed."""
    await desk.commands.cancel_run(who, id)
    return await _run(desk, id)


@router.post(
    "/workers/runs/{id}/retry",
    status_code=201,
    responses={
        **responses(404, 409),
        200: {"model": Started, "description": "The same job is under way already"},
    },
)
async def retry(id: UUID, desk: At, who: Caller, response: Response) -> Started:
    """Try an ended run again: a new run that names the old one, which stays as it is."""
    run = await desk.commands.retry_run(who, id)
    return await _started(desk, run.id, run.created, response)


async def _run(desk: At, id: UUID) -> Run:
    row = await desk.db.runs.get(id)
    if row is None:
        raise NotFound(f"there is no run {id}")
    return Run.model_validate(row)


async def _started(desk: At, id: UUID, created: bool, response: Response) -> Started:
    run = await _run(desk, id)
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/api/v1/admin/workers/runs/{id}"
    return Started(
        run_id=id, bot=run.bot, city=run.city, category=run.category, tracking_available=True, created=created
    )
