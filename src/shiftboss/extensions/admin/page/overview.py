"""The overview page: the state of the fleet, and what needs attention."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from shiftboss.db import Database
from shiftboss.db.insights.rows import Glance, PointRow, QueueDepth
from shiftboss.db.replica import LATE, state_of
from shiftboss.extension import contributions
from shiftboss.extensions.admin.page.alerts import explained
from shiftboss.extensions.admin.page.charts import ChartLine, chart, clock, ended
from shiftboss.extensions.admin.page.site import Card, Context, Page, Visit
from shiftboss.extensions.admin.page.words import age, count, depth, number, span

# Name, length, and time between two points.
SPANS = {
    "5m": ("5 minutes", timedelta(minutes=5), timedelta(minutes=1)),
    "1h": ("1 hour", timedelta(hours=1), timedelta(minutes=1)),
    "6h": ("6 hours", timedelta(hours=6), timedelta(minutes=5)),
    "1d": ("24 hours", timedelta(days=1), timedelta(minutes=20)),
    "7d": ("7 days", timedelta(days=7), timedelta(hours=2)),
    "30d": ("30 days", timedelta(days=30), timedelta(hours=12)),
}
BUSIEST = 12
MANY_FAILURES = 0.1


async def view(visit: Visit) -> Context:
    db = visit.admin.reads
    asked = visit.wanted("span") or "1h"
    chosen = asked if asked in SPANS else "1h"
    now = await db.insights.overview.glance()
    queues = sorted(await db.insights.fleet.depths(), key=lambda queue: (-queue["queued"], queue["name"]))
    points = await db.insights.series.kept_throughput(*SPANS[chosen][1:])
    sparks = await db.insights.series.per_queue()
    return {
        "spans": {key: name for key, (name, _, _) in SPANS.items()},
        "chosen": chosen,
        "findings": await _findings(db, now, queues),
        "failed": now["failed"],
        "workers": now["workers"],
        "tiles": await _tiles(db, now, queues, points, chosen),
        "charts": _charts(points, chosen),
        "replica": state_of(db),
        "queues": [{**queue, "spark": ended(sparks.get(queue["name"], []))} for queue in queues[:BUSIEST]],
        "cards": [{"template": card.template, "card": await card.view(visit)} for card in cards()],
    }


async def _findings(db: Database, now: Glance, queues: list[QueueDepth]) -> list[dict[str, Any]]:
    """Return the problems of the fleet, worst first, each with its remedy."""
    found = [explained(one) for one in await db.insights.overview.alerts()]
    waiting = sum(queue["queued"] for queue in queues)
    if waiting and not now["workers"]:
        told = f"{count(waiting, 'task')} waiting, but no worker is running"
        remedy = "Start a worker: shiftboss worker module:app"
        found.insert(0, _finding("critical", "No worker", told, remedy, "/workers"))
    for queue in queues:
        if queue["queued"] and not queue["workers"] and not queue["paused"] and now["workers"]:
            told = f"{count(queue['queued'], 'task')} waiting in {queue['name']}, but no worker serves it"
            remedy = f"Start a worker: shiftboss worker module:app --queue {queue['name']}"
            found.append(_finding("warning", "Queue without a worker", told, remedy, "/queues"))
    points = await db.insights.series.kept_throughput(*SPANS["1h"][1:])
    failed, completed = sum(p["failed"] for p in points), sum(p["completed"] for p in points)
    if failed > MANY_FAILURES * (failed + completed):
        told = f"{number(failed)} of {count(failed + completed, 'attempt')} failed in the last hour"
        remedy = "See the error groups for the cause, then retry the tasks."
        found.append(_finding("warning", "Many failures", told, remedy, "/tasks?status=Failed"))
    state = state_of(db)
    if state is not None and not state.in_use and state.reason != LATE:
        told, remedy = state.reason or "it is not in use", "Data is read from the primary instead."
        found.append(_finding("warning", "Read replica", told, remedy, "/"))
    return found


def _finding(severity: str, name: str, message: str, remedy: str, to: str) -> dict[str, Any]:
    return {"severity": severity, "name": name, "message": message, "remedy": remedy, "to": to}


async def _tiles(
    db: Database, now: Glance, queues: list[QueueDepth], points: list[PointRow], chosen: str
) -> list[dict[str, Any]]:
    oldest = max((queue["oldest_seconds"] or 0.0 for queue in queues if queue["queued"]), default=0.0)
    slots, latency = await db.health.metrics(), await db.insights.series.latency()
    down, longest = slots["crashed"] + slots["failed"], latency["max_ms"]
    done = sum(point["completed"] + point["failed"] for point in points)
    rate, complete = done / SPANS[chosen][1].total_seconds(), "/tasks?status=Complete"
    return [
        _tile("Waiting", _waiting(queues), "/tasks?status=Queued", f"oldest {age(oldest)}" if oldest else ""),
        _tile("Running", number(now["running"]), "/tasks?status=In+Progress"),
        _tile("Failed", number(now["failed"]), "/tasks?status=Failed", bad=now["failed"] > 0),
        _tile("Throughput", _rate(rate), complete, f"{number(done)} in {SPANS[chosen][0]}"),
        _tile(
            "Median duration", _ms(latency["p50_ms"]), complete, f"longest {_ms(longest)}" if longest else ""
        ),
        _tile("Workers", number(now["workers"]), "/workers", f"{down} down" if down else "", bad=down > 0),
    ]


def _tile(name: str, value: str, to: str, more: str = "", bad: bool = False) -> dict[str, Any]:
    return {"name": name, "value": value, "to": to, "more": more, "bad": bad}


def _waiting(queues: list[QueueDepth]) -> str:
    return depth(
        {
            "queued": sum(queue["queued"] for queue in queues),
            "more": any(queue["more"] for queue in queues),
            "counted": any(queue["counted"] for queue in queues),
        }
    )


def _rate(per_second: float) -> str:
    for unit, seconds in (("s", 1), ("min", 60)):
        if per_second * seconds >= 1:
            return f"{per_second * seconds:,.1f}/{unit}"
    return f"{per_second * 3600:,.1f}/h" if per_second else "0/s"


def _ms(value: float | None) -> str:
    return "–" if value is None else span(value / 1000)


def _charts(points: list[PointRow], chosen: str) -> list[dict[str, Any]]:
    step = SPANS[chosen][2]
    times_of_points, days = [point["at"] for point in points], step >= timedelta(hours=1)
    labels = clock(times_of_points, "%d %b %H:%M" if days else "%H:%M")
    axis = clock(times_of_points, "%d %b") if days else None
    per = "per minute" if step == timedelta(minutes=1) else f"per {span(step.total_seconds())}"
    done = ChartLine("complete", [p["completed"] for p in points], "s1", area=True)
    failed = ChartLine("failed", [p["failed"] for p in points], "s2")
    rates = [round(p["error_rate"] * 100, 1) if p["completed"] + p["failed"] else None for p in points]
    errors = ChartLine("error rate", rates, "s2", area=True)
    times = [
        ChartLine("p50", [p["p50"] for p in points], "s1"),
        ChartLine("p95", [p["p95"] for p in points], "s3"),
        ChartLine("p99", [p["p99"] for p in points], "s4"),
    ]
    return [
        chart([done, failed], labels, title=f"Tasks {per}", axis=axis),
        chart([errors], labels, title="Error rate", tell="{:g} %".format, none="No errors", axis=axis),
        chart(times, labels, title="Task duration", tell=span, axis=axis),
    ]


def cards() -> list[Card]:
    """Return the cards that extensions add to the overview."""
    return list(contributions("cards"))


def pages() -> tuple[Page, ...]:
    brought = cards()
    return (
        Page(
            path="/",
            title="Overview",
            label="Overview",
            icon="M3 12h4l3-8 4 16 3-8h4",
            order=10,
            template="overview.html",
            view=view,
            acts={name: act for card in brought for name, act in card.acts.items()},
            wakes=frozenset({"event", "run"}),
            folders=tuple(card.templates for card in brought),
        ),
    )
