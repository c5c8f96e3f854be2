"""What happened, as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup

from shiftboss.admin.page.forms import field
from shiftboss.admin.page.markup import card, empty, html, join, link, short, tone_of, when

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Screen

WAKES = frozenset({"event"})
SHOWN = 100
FILTERS = {"kind": "Kind", "worker_id": "Worker", "component": "Slot"}
# How an event's kind ends tells how it is meant.
TONES = {
    "crashed": "crashed", "failed": "failed", "lost": "lost", "poison": "failed", "paused": "paused",
    "opened": "open", "running": "running", "starting": "starting", "started": "running",
    "healthy": "healthy", "joined": "active", "finished": "finished",
}  # fmt: skip


async def build(screen: Screen) -> None:
    screen.title("Events")
    chosen = {name: screen.query.get(name) or None for name in FILTERS}
    before = screen.query.get("before", "")
    bound = int(before) if before.isdecimal() else None
    fields = join(field(name, label, chosen[name], placeholder="any") for name, label in FILTERS.items())
    screen.show(
        html(
            '<form class="filter" method="get" action="/events" role="search">{}'
            '<button class="btn main">Show</button><a class="btn" href="/events">Clear</a></form>',
            fields,
        )
    )

    async def read() -> dict[str, Any]:
        rows = await screen.desk.db.events.latest(SHOWN, before=bound, **chosen)
        return {"rows": rows, "chosen": {name: value for name, value in chosen.items() if value}}

    key = ("events", *chosen.values(), bound)
    await screen.live(screen.sampler.reading(key, read, 60.0, WAKES), _page)


def _page(seen: dict[str, Any], may: bool) -> Markup:
    rows = seen["rows"]
    if not rows and seen["chosen"]:
        return card("Events", empty("No event matches", html("{}", link("/events", "Show all events"))))
    if not rows:
        return card("Events", empty("Nothing has happened yet", "Start a worker or enqueue a task."))
    older = ""
    if len(rows) == SHOWN:
        onward = urlencode(seen["chosen"] | {"before": rows[-1]["id"]})
        older = html('<a class="btn" href="/events?{}">Older</a>', onward)
    return card("Events", timeline(rows)) + html('<div class="pager">{}</div>', older)


def timeline(events: list[dict[str, Any]]) -> Markup:
    """Newest first."""
    if not events:
        return empty("Nothing has happened here yet")
    return html('<ol class="line-of-time">{}</ol>', join(map(_line, events)))


def _line(event: dict[str, Any]) -> Markup:
    return html(
        '<li data-key="e{}">{}<span>{}</span><span class="what">{}</span></li>',
        event["id"],
        when(event["at"]),
        _kind(event["kind"]),
        join((*_subjects(event), details(event["details"]))),
    )


def _kind(kind: str) -> Markup:
    meant = next((state for word, state in TONES.items() if kind.endswith(word)), kind)
    return html('<span class="badge {}">{}</span>', tone_of(meant), kind)


def _subjects(event: dict[str, Any]) -> list[Markup]:
    found = []
    if event["component"]:
        found.append(html("{} ", link("/slots/{}", event["component"], event["component"])))
    if event["worker_id"]:
        found.append(html("{} ", link("/workers/{}", event["worker_id"], event["worker_id"])))
    if event["task_id"]:
        found.append(html("{} ", link("/tasks/{}", f"task {short(event['task_id'])}", event["task_id"])))
    return found


def details(details: dict[str, Any]) -> str:
    """Name and value of each, as far as they fit."""
    return " · ".join(f"{name} {value}" for name, value in details.items() if value is not None)[:400]
