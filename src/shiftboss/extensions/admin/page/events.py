"""The list of events, newest first."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from shiftboss.extensions.admin.page.site import Context, Page, Visit
from shiftboss.extensions.admin.page.words import tone

SHOWN = 100
FILTERS = {"kind": "Kind", "worker_id": "Worker", "component": "Slot"}
# The state that the last word of an event's kind stands for.
MEANT = {
    "crashed": "crashed", "failed": "failed", "lost": "lost", "poison": "failed", "paused": "paused",
    "opened": "open", "running": "running", "starting": "starting", "started": "running",
    "healthy": "healthy", "joined": "active", "finished": "complete",
}  # fmt: skip


async def view(visit: Visit) -> Context:
    chosen = {name: visit.wanted(name) for name in FILTERS}
    before = visit.wanted("before") or ""
    bound = int(before) if before.isdecimal() and len(before) < 19 else None
    rows = await visit.admin.reads.events.latest(SHOWN, before=bound, **chosen)
    given = {name: value for name, value in chosen.items() if value}
    older = urlencode(given | {"before": rows[-1]["id"]}) if len(rows) == SHOWN else None
    return {"rows": toned(rows), "chosen": chosen, "given": given, "older": older, "filters": FILTERS}


def toned(rows: list[Any]) -> list[Context]:
    """Return the events with the colours of their kinds."""
    return [row | {"tone": tone(meaning(row["kind"]))} for row in rows]


def meaning(kind: str) -> str:
    """Return the state that an event of this kind reports."""
    return next((state for end, state in MEANT.items() if kind.endswith(end)), kind)


PAGES = (
    Page(
        path="/events",
        title="Events",
        label="Events",
        icon="M4 5h16v11H9l-5 4z",
        order=100,
        template="events.html",
        view=view,
        every=60.0,
        wakes=frozenset({"event"}),
    ),
)
