"""Monitor: finds places that were not checked for long and checks them again."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shiftboss.bots.checks import examine
from shiftboss.bots.registry import bot
from shiftboss.bots.run import Run
from shiftboss.bots.walk import places
from shiftboss.bots.web import Web


class MonitorParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    stale_days: Annotated[float, Field(ge=0, le=36_500)] | None = Field(
        default=None, description="Not checked for so many days; none: the setting"
    )
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=200, description="At most so many places"
    )
    websites: bool = Field(default=True, description="Look at their websites as well")


@bot("monitor")
async def monitor(run: Run, params: MonitorParams) -> None:
    """Find stale places and check them again."""
    days = run.settings.bots.stale_days if params.stale_days is None else params.stale_days
    before = datetime.now(UTC) - timedelta(days=days)
    cities = run.catalog.cities
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(Web(run.settings.bots)) if params.websites else None
        async for place in places(run, params.limit, checked_before=before):
            status, checks = await examine(place, cities.get(place["city"]), web)
            await run.db.places.check_place(place["id"], status, checks)
            run.count("rechecked")
            run.count("unchanged" if status == place["status"] else f"now_{status}")


if __name__ == "__main__":
    from shiftboss.bots.command import main

    raise SystemExit(main("monitor"))
