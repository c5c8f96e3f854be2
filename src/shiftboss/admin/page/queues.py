"""Queues: depth, age, pause, limits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.markup import (
    badge,
    button,
    card,
    code,
    empty,
    field,
    html,
    link,
    number,
    span,
    table,
)
from shiftboss.model.access import Principal
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Screen

WAKES = frozenset({"event"})


async def build(screen: Screen) -> None:
    screen.title("Queues")
    queues = screen.desk.db.insights.fleet.queues
    await screen.live(screen.sampler.reading("queues", lambda: queues(fresh=True), 5.0, WAKES), _page)
    commands = screen.desk.commands

    async def pause(who: Principal, values: dict[str, str]) -> str:
        await commands.pause_queue(who, values["arg"])
        return f"{values['arg']} is paused: running tasks finish, waiting ones stay"

    async def resume(who: Principal, values: dict[str, str]) -> str:
        await commands.resume_queue(who, values["arg"])
        return f"{values['arg']} goes on"

    async def limit(who: Principal, values: dict[str, str]) -> str:
        most, rate = _figure(values, "max_running"), _figure(values, "rate")
        period = timedelta(seconds=_figure(values, "seconds") or 60) if rate else None
        await commands.limit_queue(who, values["arg"], most, rate, period)
        return f"the limits of {values['arg']} are set"

    screen.on("pause", pause)
    screen.on("resume", resume)
    screen.on("limit", limit)


def _figure(values: dict[str, str], name: str) -> int | None:
    text = values.get(name, "").strip()
    if not text:
        return None
    if not text.isdigit():
        raise UsageError(f"{name} is a whole number, not {text!r}")
    return int(text)


def _page(queues: list[dict[str, Any]], may: bool) -> Markup:
    return card("Queues", queues_table(queues, may=may, full=True))


def queues_table(queues: list[dict[str, Any]], *, may: bool = False, full: bool = False) -> Markup:
    """`full` has limits and actions, too."""
    if not queues:
        how = html("Enqueue a task, or start a worker: {}", code("shiftboss worker module:app"))
        return empty("No queue yet", how)
    rows = [_row(queue, full) + (_steering(queue, may) if full else ()) for queue in queues]
    heads = ("Queue", "State", "#Waiting", "#Running", "#Oldest", "#Workers")
    more = ("Limits", "#Actions") if full else ()
    return table((*heads, *more), rows, caption="Queues", keys=[queue["name"] for queue in queues])


def _row(queue: dict[str, Any], full: bool) -> tuple[Any, ...]:
    why = queue["pause_reason"] if full else None
    reason = html(' <span class="dim">{}</span>', why) if why else ""
    return (
        link("/tasks?queue={}", queue["name"], queue["name"]),
        badge("paused" if queue["paused"] else "flowing") + reason,
        number(queue["queued"]),
        number(queue["running"]),
        age(queue["oldest_seconds"] or 0.0) if queue["queued"] else None,
        queue["workers"],
    )


def _steering(queue: dict[str, Any], may: bool) -> tuple[Any, ...]:
    name = queue["name"]
    steer = (
        button("Resume", "resume", name, may=may)
        if queue["paused"]
        else button("Pause", "pause", name, may=may, confirm=f"Pause the queue {name}? Running tasks finish.")
    )
    return _limits(queue, may), html('<span class="acts">{}</span>', steer)


def _limits(queue: dict[str, Any], may: bool) -> Markup:
    told = []
    if queue["max_running"] is not None:
        told.append(f"{queue['max_running']} at a time")
    if queue["rate"] is not None:
        told.append(f"{queue['rate']} per {span(queue['rate_seconds'])}")
    shown = ", ".join(told) or "none"
    if not may:
        return html("{}", shown)
    return html(
        '<details data-key="limits-{}"><summary>{}</summary>'
        '<form class="filter" data-act="limit" data-arg="{}">{}{}{}'
        '<button class="btn">Set</button></form></details>',
        queue["name"],
        shown,
        queue["name"],
        field("max_running", "At a time", queue["max_running"], "number", "no limit"),
        field("rate", "Starts", queue["rate"], "number", "no limit"),
        field("seconds", "per seconds", f"{queue['rate_seconds'] or 60:.0f}", "number"),
    )


def age(seconds: float) -> str:
    """In coarse steps: a figure that changes with every reading would be sent with every reading."""
    return "fresh" if seconds < 10 else span(seconds // 10 * 10 if seconds < 600 else seconds // 60 * 60)
