"""Verify: checks each candidate's data and website, and promotes or rejects it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shiftboss.bots.checks import examine
from shiftboss.bots.registry import bot
from shiftboss.bots.run import Run
from shiftboss.bots.walk import places
from shiftboss.bots.web import Web


class VerifyParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=200, description="At most so many places"
    )
    websites: bool = Field(default=True, description="Look at their websites as well")


@bot("verify")
async def verify(run: Run, params: VerifyParams) -> None:
    """Check address, coordinates, opening hours, phone and website of candidates; promote or reject them."""
    cities = run.catalog.cities
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(Web(run.settings.bots)) if params.websites else None
        async for place in places(run, params.limit, status="candidate"):
            status, checks = await examine(place, cities.get(place["city"]), web)
            await run.db.places.check_place(place["id"], status, checks)
            run.count("checked")
            run.count({"verified": "promoted", "rejected": "rejected"}.get(status, "undecided"))


if __name__ == "__main__":
    from shiftboss.bots.command import main

    raise SystemExit(main("verify"))
