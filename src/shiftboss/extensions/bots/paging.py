"""Iterates over places in order of id, so that a run can continue at its checkpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

from shiftboss.extensions.bots.places import Places
from shiftboss.extensions.bots.run import Run

BATCH = 100


async def places_from_checkpoint(
    run: Run,
    limit: int,
    *,
    status: str | None = None,
    checked_before: datetime | None = None,
    unclassified: bool = False,
) -> AsyncIterator[dict[str, Any]]:
    """Yield places after the checkpoint, and report a step after each."""
    wanted: dict[str, Any] = {
        "city": run.city.key if run.city else None,
        "category": run.category.key if run.category else None,
        "status": status,
        "checked_before": checked_before,
        "unclassified": unclassified,
    }
    done = int(run.checkpoint.get("done", 0))
    total = min(limit, done + await run.db.family(Places).count_places(**wanted))
    after = UUID(run.checkpoint["after"]) if "after" in run.checkpoint else None
    while done < total:
        batch = await run.db.family(Places).list_places(**wanted, after=after, limit=min(BATCH, total - done))
        for place in batch:
            yield place
            done, after = done + 1, place["id"]
            run.checkpoint = {"after": str(after), "done": done}
            await run.step(done, total, place["name"])
        if not batch:
            return
