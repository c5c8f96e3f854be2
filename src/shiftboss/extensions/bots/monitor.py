"""The bot `monitor`: checks places again that have not been checked for some time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from shiftboss.extensions.bots.checks import CheckParams, check_places
from shiftboss.extensions.bots.registry import bot
from shiftboss.extensions.bots.run import Run
from shiftboss.extensions.bots.settings import BotsSettings


class MonitorParams(CheckParams):
    stale_days: Annotated[float, Field(ge=0, le=36_500)] | None = Field(
        default=None, description="Days since the last check; default: the setting bots.stale_days"
    )


@bot("monitor")
async def monitor(run: Run, params: MonitorParams) -> None:
    """Find stale places and check them again."""
    days = BotsSettings.of(run.settings).stale_days if params.stale_days is None else params.stale_days
    before = datetime.now(UTC) - timedelta(days=days)
    async for place, status in check_places(run, params, checked_before=before):
        run.count("rechecked")
        run.count("unchanged" if status == place["status"] else f"now_{status}")


if __name__ == "__main__":
    from shiftboss.extensions.bots.command import main

    raise SystemExit(main("monitor"))
