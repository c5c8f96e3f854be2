"""HTTP API of bots: list them, start and retry runs, and read the directory of places."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from fastapi import Response
from pydantic import Field

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import FilterText, In, Limit, Name, Out, Text, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.extensions.bots.operations import BotOperations
from shiftboss.extensions.bots.places import Places
from shiftboss.extensions.runs.api import get_run
from shiftboss.extensions.runs.store import StartedRun

of_runs, of_places = make_router("runs"), make_router("places")

PlaceStatus = Literal["candidate", "verified", "rejected"]


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


@of_runs.get("/bots")
async def bots(admin: At, who: Caller) -> Choices:
    """List bots with their parameters, cities and categories."""
    bots = admin.use(BotOperations).bots
    infos = [
        BotInfo(name=bot.name, description=bot.description, params=bot.schema())
        for bot in bots.by_name.values()
    ]
    return Choices(bots=infos, **bots.choices())


ACTIVE: dict[int | str, dict[str, Any]] = {
    200: {"model": Started, "description": "The same job is already pending or running"}
}


@of_runs.post("/workers/run", status_code=201, responses=ACTIVE)
async def start(order: StartRun, admin: At, who: Caller, response: Response) -> Started:
    """Start a run. If the same job is already pending or running, return its run."""
    run = await admin.use(BotOperations).start_run(who, order.bot, order.city, order.category, order.params)
    return await _started(admin, run, response)


@of_runs.post("/workers/runs/{id}/retry", status_code=201, responses={**responses(404, 409), **ACTIVE})
async def retry(id: UUID, admin: At, who: Caller, response: Response) -> Started:
    """Retry a run that has ended, as a new run that refers to it."""
    return await _started(admin, await admin.use(BotOperations).retry_run(who, id), response)


async def _started(admin: At, started: StartedRun, response: Response) -> Started:
    id, created = started
    run = await get_run(admin, id)
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/api/v1/admin/workers/runs/{id}"
    return Started(
        run_id=id, bot=run.bot, city=run.city, category=run.category, tracking_available=True, created=created
    )


class Place(Out):
    id: UUID
    city: str
    name: str
    category: str | None
    confidence: float | None
    status: PlaceStatus
    lat: float
    lon: float
    address: str | None
    phone: str | None
    website: str | None
    opening_hours: str | None
    checks: dict[str, Any]
    created_at: datetime
    seen_at: datetime
    classified_at: datetime | None
    checked_at: datetime | None


@of_places.get("/places")
async def places(
    admin: At,
    who: Caller,
    city: FilterText = None,
    category: FilterText = None,
    status: PlaceStatus | None = None,
    after: UUID | None = None,
    limit: Limit = 50,
) -> list[Place]:
    """List places in order of id. `after` is the last id of the previous page."""
    rows = await admin.db.family(Places).list_places(
        city=city, category=category, status=status, after=after, limit=limit
    )
    return [Place.model_validate(row) for row in rows]
