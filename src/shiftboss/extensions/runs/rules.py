"""Alert rules for runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.extensions.runs.store import Runs
from shiftboss.model.alert import Found, Rule

if TYPE_CHECKING:
    from shiftboss.db import Database


async def failed(db: Database, threshold: float) -> list[Found]:
    """Return the bots whose latest completed run failed."""
    found = []
    for row in await db.family(Runs).latest_ended():
        if row["status"] == "failed":
            reason = (row["error_message"] or "no reason given").partition("\n")[0]
            message = f"the latest run of {row['bot']} failed: {reason}"
            found.append(Found(row["bot"], message, f"shiftboss runs show {row['id']}", 1.0))
    return found


RULES = (
    Rule(
        name="run_failed",
        summary="The latest run of a bot failed",
        threshold=0,
        find=failed,
        expression="max by (bot) (run_failed) > $threshold",
        lasting="0m",
        panel="max by (bot) (run_failed)",
    ),
)
