"""The bot `monitor`: checks places again that have not been checked for some time."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from shiftboss.extensions.bots.checks import examine
from shiftboss.extensions.bots.paging import places_from_checkpoint
from shiftboss.extensions.bots.places import Places
from shiftboss.extensions.bots.registry import bot
from shiftboss.extensions.bots.run import Run
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.bots.web import Web


class MonitorParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    stale_days: Annotated[float, Field(ge=0, le=36_500)] | None = Field(
        default=None, description="Days since the last check; default: the setting bots.stale_days"
    )
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=200, description="Maximum number of places"
    )
    websites: bool = Field(default=True, description="Also check websites")


@bot("monitor")
async def monitor(run: Run, params: MonitorParams) -> None:
    """Find stale places and check them again."""
    days = BotsSettings.of(run.settings).stale_days if params.stale_days is None else params.stale_days
    before = datetime.now(UTC) - timedelta(days=days)
    cities = run.catalog.cities
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(Web(BotsSettings.of(run.settings))) if params.websites else None
        async for place in places_from_checkpoint(run, params.limit, checked_before=before):
            status, checks = await examine(place, cities.get(place["city"]), web)
            await run.db.family(Places).check_place(place["id"], status, checks)
            run.count("rechecked")
            run.count("unchanged" if status == place["status"] else f"now_{status}")


if __name__ == "__main__":
    from shiftboss.extensions.bots.command import main

    raise SystemExit(main("monitor"))
