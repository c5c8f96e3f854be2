"""The overview page: the state of the fleet, and what needs attention."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shiftboss.db.replica import LATE, state_of
from shiftboss.extension import contributions
from shiftboss.extensions.admin.page.alerts import explained
from shiftboss.extensions.admin.page.charts import Line, chart, clock, spark
from shiftboss.extensions.admin.page.site import Card, Context, Page, Visit
from shiftboss.extensions.admin.page.words import age, count, number, span

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.db.insights.rows import Point

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
    counts = await db.insights.overview.counts()
    queues = sorted(await db.insights.fleet.depths(), key=lambda queue: (-queue["queued"], queue["name"]))
    points = await db.insights.series.kept_throughput(*SPANS[chosen][1:])
    sparks = await db.insights.series.per_queue()
    return {
        "spans": {key: name for key, (name, _, _) in SPANS.items()},
        "chosen": chosen,
        "findings": await _findings(db, counts, queues),
        "failed": counts["failed_tasks"],
        "tiles": await _tiles(db, counts, queues, points, chosen),
        "charts": _charts(points, chosen),
        "replica": state_of(db),
        "queues": [queue | {"spark": _spark(sparks, queue["name"])} for queue in queues[:BUSIEST]],
        "cards": [{"template": card.template, "card": await card.view(visit)} for card in cards()],
    }


async def _findings(db: Database, counts: Any, queues: list[Any]) -> list[dict[str, Any]]:
    """Return the problems of the fleet, worst first, each with its remedy."""
    found = [explained(one) for one in await db.insights.overview.alerts()]
    if counts["queued_tasks"] and not counts["active_workers"]:
        told = f"{count(counts['queued_tasks'], 'task')} waiting, but no worker is running"
        remedy = "Start a worker: shiftboss worker module:app"
        found.insert(0, _finding("critical", "No worker", told, remedy, "/workers"))
    for queue in queues:
        if queue["queued"] and not queue["workers"] and not queue["paused"] and counts["active_workers"]:
            told = f"{count(queue['queued'], 'task')} waiting in {queue['name']}, but no worker serves it"
            remedy = f"Start a worker: shiftboss worker module:app --queue {queue['name']}"
            found.append(_finding("warning", "Queue without a worker", told, remedy, "/queues"))
    points = await db.insights.series.kept_throughput(*SPANS["1h"][1:])
    failed, ended = (sum(point[name] for point in points) for name in ("failed", "completed"))
    if failed > MANY_FAILURES * (failed + ended):
        told = f"{number(failed)} of {count(failed + ended, 'attempt')} failed in the last hour"
        remedy = "See the error groups for the cause, then retry the tasks."
        found.append(_finding("warning", "Many failures", told, remedy, "/tasks?status=Failed"))
    return found + _behind(db)


def _behind(db: Database) -> list[dict[str, Any]]:
    state = state_of(db)
    if state is None or state.in_use or state.reason == LATE:
        return []
    remedy = "Data is read from the primary instead."
    return [_finding("warning", "Read replica", state.reason or "it is not in use", remedy, "/")]


def _finding(severity: str, name: str, message: str, remedy: str, to: str) -> dict[str, Any]:
    return {"severity": severity, "name": name, "message": message, "remedy": remedy, "to": to}


async def _tiles(
    db: Database, counts: Any, queues: list[Any], points: list[Point], chosen: str
) -> list[dict[str, Any]]:
    oldest = max((queue["oldest_seconds"] or 0.0 for queue in queues if queue["queued"]), default=0.0)
    slots, latency = await db.health.metrics(), await db.insights.series.latency()
    down = slots["crashed"] + slots["failed"]
    ended = sum(point["completed"] + point["failed"] for point in points)
    rate = ended / SPANS[chosen][1].total_seconds()
    return [
        _tile(
            "Waiting",
            counts["queued_tasks"],
            "/tasks?status=Queued",
            f"oldest {age(oldest)}" if oldest else "",
        ),
        _tile("Running", counts["running_tasks"], "/tasks?status=In+Progress"),
        _tile("Failed", counts["failed_tasks"], "/tasks?status=Failed", bad=counts["failed_tasks"] > 0),
        _tile("Throughput", _rate(rate), "/tasks?status=Complete", f"{number(ended)} in {SPANS[chosen][0]}"),
        _tile(
            "Median duration",
            _ms(latency["p50_ms"]),
            "/tasks?status=Complete",
            "" if latency["max_ms"] is None else f"longest {_ms(latency['max_ms'])}",
        ),
        _tile("Workers", counts["active_workers"], "/workers", f"{down} down" if down else "", bad=down > 0),
    ]


def _tile(name: str, value: Any, to: str, more: str = "", bad: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "value": number(value) if isinstance(value, int) else value,
        "to": to,
        "more": more,
        "bad": bad,
    }


def _rate(per_second: float) -> str:
    if not per_second:
        return "0/s"
    return f"{per_second:,.1f}/s" if per_second >= 1 else f"{per_second * 60:,.1f}/min"


def _ms(value: float | None) -> str:
    return "–" if value is None else span(value / 1000)


def _charts(points: list[Point], chosen: str) -> list[dict[str, Any]]:
    step = SPANS[chosen][2]
    labels = clock([point["at"] for point in points], step)
    per = "per minute" if step == timedelta(minutes=1) else f"per {span(step.total_seconds())}"
    done = Line("complete", [p["completed"] for p in points], "s1", area=True)
    failed = Line("failed", [p["failed"] for p in points], "s2")
    rates = [round(p["error_rate"] * 100, 1) if p["completed"] + p["failed"] else None for p in points]
    times = [
        Line("p50", [p["p50"] for p in points], "s1"),
        Line("p95", [p["p95"] for p in points], "s3"),
        Line("p99", [p["p99"] for p in points], "s4"),
    ]
    return [
        {"title": f"Tasks {per}", "chart": chart([done, failed], labels, title=f"Tasks {per}")},
        {
            "title": "Error rate",
            "chart": chart(
                [Line("error rate", rates, "s2", area=True)],
                labels,
                title="Error rate",
                tell="{:g} %".format,
                none="No errors",
            ),
        },
        {"title": "Task duration", "chart": chart(times, labels, title="Task duration", tell=span)},
    ]


def _spark(sparks: dict[str, list[int]], name: str) -> dict[str, Any]:
    values = sparks.get(name, [])
    return spark(values, f"{count(sum(values), 'task')} ended in the last hour")


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
