"""The bot `verify`: checks candidates, and promotes or rejects them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shiftboss.extensions.bots.checks import examine
from shiftboss.extensions.bots.paging import places_from_checkpoint
from shiftboss.extensions.bots.places import Places
from shiftboss.extensions.bots.registry import bot
from shiftboss.extensions.bots.run import Run
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.bots.web import Web


class VerifyParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=200, description="Maximum number of places"
    )
    websites: bool = Field(default=True, description="Also check websites")


@bot("verify")
async def verify(run: Run, params: VerifyParams) -> None:
    """Check address, coordinates, opening hours, phone and website of candidates; promote or reject them."""
    cities = run.catalog.cities
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(Web(BotsSettings.of(run.settings))) if params.websites else None
        async for place in places_from_checkpoint(run, params.limit, status="candidate"):
            status, checks = await examine(place, cities.get(place["city"]), web)
            await run.db.family(Places).check_place(place["id"], status, checks)
            run.count("checked")
            run.count({"verified": "promoted", "rejected": "rejected"}.get(status, "undecided"))


if __name__ == "__main__":
    from shiftboss.extensions.bots.command import main

    raise SystemExit(main("verify"))
