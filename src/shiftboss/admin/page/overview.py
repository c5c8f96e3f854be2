"""The whole fleet at a glance."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.markup import card, empty, html, join, link, number, span
from shiftboss.admin.page.providers import providers_table
from shiftboss.admin.page.queues import age, queues_table
from shiftboss.admin.page.runs import active_runs, cancel_run
from shiftboss.admin.page.svg import Line, chart, clock

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Screen
    from shiftboss.db import Database

# Span, step, and how often to look.
SPANS = {
    "hour": (timedelta(hours=1), timedelta(minutes=1), 10.0),
    "day": (timedelta(days=1), timedelta(minutes=15), 60.0),
}
WAKES = frozenset({"event", "run"})
STATES = ("starting", "healthy", "stopping", "crashed", "failed")


async def build(screen: Screen) -> None:
    db, sampler = screen.desk.db, screen.sampler
    asked = screen.query.get("span", "hour")
    chosen = asked if asked in SPANS else "hour"
    screen.title("Overview", side=_choice(chosen))
    await screen.live(sampler.reading("glance", lambda: _glance(db), 5.0, WAKES), _tiles)
    series = sampler.reading(("series", chosen), lambda: _series(db, chosen), SPANS[chosen][2])
    await screen.live(series, _charts)
    await screen.live(sampler.reading("current", lambda: _current(db), 5.0, WAKES), _now)
    screen.on("cancel-run", cancel_run(screen))


async def _glance(db: Database) -> dict[str, Any]:
    return {
        "counts": await db.insights.overview.counts(),
        "slots": await db.health.metrics(),
        "queues": await db.insights.fleet.depths(),
        "latency": await db.insights.series.latency(),
    }


def _tiles(seen: dict[str, Any], may: bool) -> Markup:
    counts, slots, latency = seen["counts"], seen["slots"], seen["latency"]
    oldest = max((queue["oldest_seconds"] or 0.0 for queue in seen["queues"]), default=0.0)
    failed, longest = counts["failed_tasks"], span(_seconds(latency["max_ms"]))
    down = slots["crashed"] + slots["failed"] > 0
    complete = "/tasks?status=Complete"
    tiles = (
        _tile("/workers", counts["active_workers"], "workers active", _slots(slots), down),
        _tile("/tasks?status=Queued", counts["queued_tasks"], "waiting", f"oldest {age(oldest)}"),
        _tile("/tasks?status=In+Progress", counts["running_tasks"], "running"),
        _tile("/tasks?status=Failed", failed, "failed", "dead letters", failed > 0),
        _tile(complete, counts["completed_tasks"], "complete"),
        _tile(complete, span(_seconds(latency["p50_ms"])), "typical task", f"longest {longest}"),
    )
    return html('<div class="tiles">{}</div>', join(tiles))


def _tile(to: str, value: Any, name: str, more: str = "", bad: bool = False) -> Markup:
    return html(
        '<a class="tile{}" href="{}"><b>{}</b><span>{}</span> <span class="more">{}</span></a>',
        " bad" if bad else "",
        to,
        number(value) if isinstance(value, int) else value,
        name,
        more,
    )


def _slots(slots: dict[str, Any]) -> str:
    told = [f"{slots[state]} {state}" for state in STATES if slots[state]]
    return ", ".join(told) + " in slots" if told else ""


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


async def _series(db: Database, chosen: str) -> tuple[str, list[dict[str, Any]]]:
    span, step, _ = SPANS[chosen]
    return chosen, await db.insights.series.throughput(span, step)


def _charts(seen: tuple[str, list[dict[str, Any]]], may: bool) -> Markup:
    chosen, points = seen
    per = "per minute" if chosen == "hour" else "per 15 minutes"
    labels = clock([point["at"] for point in points])
    done = Line("completed", [p["completed"] for p in points], "s1", area=True)
    failed = Line("failed", [p["failed"] for p in points], "s2")
    rate = Line("error rate", [round(p["error_rate"] * 100, 1) for p in points], "s2", area=True)
    tones = (("p50", "s1"), ("p95", "s3"), ("p99", "s4"))
    times = [Line(name, [p[name] for p in points], tone) for name, tone in tones]
    return html(
        '<div class="grid three">{}{}{}</div>',
        card(f"Throughput, {per}", chart([done, failed], labels, title=f"Tasks {per}")),
        card("Error rate", chart([rate], labels, title="Share of attempts that failed", tell=_percent)),
        card("Latency", chart(times, labels, title="How long tasks take", tell=span)),
    )


def _choice(chosen: str) -> Markup:
    here = Markup(' aria-current="true"')
    links = (
        html('<a class="btn" href="/?span={}"{}>last {}</a>', key, here if key == chosen else "", key)
        for key in SPANS
    )
    return html('<span class="acts">{}</span>', join(links))


def _percent(value: float) -> str:
    return f"{value:g} %"


async def _current(db: Database) -> dict[str, Any]:
    return {
        "runs": await db.runs.active(),
        "queues": await db.insights.fleet.depths(),
        "providers": await db.insights.providers.status(),
    }


def _now(seen: dict[str, Any], may: bool) -> Markup:
    runs = active_runs(seen["runs"][:20], may)
    if not seen["runs"]:
        runs = empty("No run is under way", html("Start one on {}.", link("/runs", "Runs")))
    busiest = sorted(seen["queues"], key=lambda queue: -queue["queued"])[:12]
    return html(
        '<div class="grid">{}{}{}</div>',
        card("Active runs", runs, side=link("/runs", "all runs"), wide=True),
        card("Queues", queues_table(busiest), side=link("/queues", "all queues")),
        card("Providers", providers_table(seen["providers"]), side=link("/providers", "all providers")),
    )
