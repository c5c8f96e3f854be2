"""The bot `verify`: checks candidates, and promotes or rejects them."""

from __future__ import annotations

from shiftboss.extensions.bots.checks import CheckParams, check_places
from shiftboss.extensions.bots.registry import bot
from shiftboss.extensions.bots.run import Run


@bot("verify")
async def verify(run: Run, params: CheckParams) -> None:
    """Check address, coordinates, opening hours, phone and website of candidates; promote or reject them."""
    async for _, status in check_places(run, params, status="candidate"):
        run.count("checked")
        run.count({"verified": "promoted", "rejected": "rejected"}.get(status, "undecided"))


if __name__ == "__main__":
    from shiftboss.extensions.bots.command import main

    raise SystemExit(main("verify"))
