"""HTTP API to list bots, and to start and retry runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import Response
from pydantic import Field

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import In, Name, Out, Text, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.extensions.bots.operations import BotOperations
from shiftboss.extensions.runs.api import get_run

router = make_router("runs")


class StartRun(In):
    """The run to start. `GET bots` lists the `params` of each bot."""

    bot: Name = Field(examples=["discovery"])
    city: Text | None = Field(default=None, examples=["rotterdam"])
    category: Text | None = Field(default=None, examples=["bakery"])
    params: dict[str, Any] = Field(default_factory=dict, examples=[{}])


class Started(Out):
    run_id: UUID
    bot: str
    city: str | None
    category: str | None
    tracking_available: bool = Field(description="progress is available under the run's id")
    created: bool = Field(description="false if the same job was already pending or running")


class BotInfo(Out):
    name: str
    description: str
    params: dict[str, Any] = Field(description="JSON Schema of the parameters")


class Choices(Out):
    """The bots, cities and categories that a run can have."""

    bots: list[BotInfo]
    cities: dict[str, str] = Field(description="name by key", examples=[{"rotterdam": "Rotterdam"}])
    categories: dict[str, str] = Field(description="name by key", examples=[{"bakery": "Bakery"}])
    errors: list[str] = Field(description="errors of configuration files; their last valid versions apply")


@router.get("/bots")
async def bots(admin: At, who: Caller) -> Choices:
    """List bots with their parameters, cities and categories."""
    operations = admin.use(BotOperations)
    cities, categories = operations.catalog.cities, operations.catalog.categories
    return Choices(
        bots=[
            BotInfo(name=bot.name, description=bot.description, params=bot.schema())
            for bot in operations.bots
        ],
        cities={key: city.name for key, city in cities.items()},
        categories={key: category.name for key, category in categories.items()},
        errors=operations.catalog.errors,
    )


@router.post(
    "/workers/run",
    status_code=201,
    responses={200: {"model": Started, "description": "The same job is already pending or running"}},
)
async def start(order: StartRun, admin: At, who: Caller, response: Response) -> Started:
    """Start a run. If the same job is already pending or running, return its run."""
    run = await admin.use(BotOperations).start_run(who, order.bot, order.city, order.category, order.params)
    return await _started(admin, run.id, run.created, response)


@router.post(
    "/workers/runs/{id}/retry",
    status_code=201,
    responses={
        **responses(404, 409),
        200: {"model": Started, "description": "The same job is already pending or running"},
    },
)
async def retry(id: UUID, admin: At, who: Caller, response: Response) -> Started:
    """Retry a run that has ended, as a new run that refers to it."""
    run = await admin.use(BotOperations).retry_run(who, id)
    return await _started(admin, run.id, run.created, response)


async def _started(admin: At, id: UUID, created: bool, response: Response) -> Started:
    run = await get_run(admin, id)
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/api/v1/admin/workers/runs/{id}"
    return Started(
        run_id=id, bot=run.bot, city=run.city, category=run.category, tracking_available=True, created=created
    )
