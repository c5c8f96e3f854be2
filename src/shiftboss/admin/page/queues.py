"""Queues: depth, age, pause, limits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.forms import field, figure, form, text
from shiftboss.admin.page.markup import (
    acts,
    badge,
    button,
    card,
    code,
    empty,
    html,
    link,
    number,
    span,
    table,
)
from shiftboss.db.insights.fleet import COUNTED
from shiftboss.model.access import Principal, Role

if TYPE_CHECKING:
    from shiftboss.admin.commands import Kind
    from shiftboss.admin.page.screen import Screen

WAKES = frozenset({"event"})


async def build(screen: Screen) -> None:
    screen.title("Queues")
    fleet = screen.desk.db.insights.fleet
    await screen.live(screen.sampler.reading("queues", lambda: fleet.depths(fresh=True), 5.0, WAKES), _page)
    await screen.live(screen.sampler.reading("types", fleet.types, 10.0, WAKES), _types)
    _steer(screen)


def _steer(screen: Screen) -> None:
    commands = screen.desk.commands

    async def ask_pause(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.OPERATOR)
        reason = html(
            '<p class="whole">Running tasks finish, waiting ones stay.</p>{}',
            field("reason", "Why, for those who ask", placeholder="until the month is closed"),
        )
        screen.sheet(f"Pause {_named(values)[1]}", form("pause", values["arg"], reason, "Pause"))
        return ""

    async def pause(who: Principal, values: dict[str, str]) -> str:
        kind, name = _named(values)
        await commands.pause_queue(who, name, text(values, "reason"), kind)
        return f"{name} is paused: running tasks finish, waiting ones stay"

    async def resume(who: Principal, values: dict[str, str]) -> str:
        kind, name = _named(values)
        await commands.resume_queue(who, name, kind)
        return f"{name} goes on"

    async def ask_limit(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.OPERATOR)
        kind, name = _named(values)
        screen.sheet(f"Limits of {name}, over the whole fleet", await _limit_form(screen, kind, name))
        return ""

    async def limit(who: Principal, values: dict[str, str]) -> str:
        kind, name = _named(values)
        rate = figure(values, "rate")
        period = timedelta(seconds=figure(values, "seconds") or 60) if rate else None
        per_key = figure(values, "max_per_key")
        most = figure(values, "max_running")
        await commands.limit_queue(who, name, most, rate, period, kind=kind, max_per_key=per_key)
        return f"the limits of {name} are set" if most or rate or per_key else f"{name} has no limit any more"

    for name, handler in (("ask-pause", ask_pause), ("pause", pause), ("resume", resume)):
        screen.on(name, handler)
    screen.on("ask-limit", ask_limit)
    screen.on("limit", limit)


def _named(values: dict[str, str]) -> tuple[Kind, str]:
    """What a button is about: `queue mail` or `task_type render`."""
    kind, _, name = values["arg"].partition(" ")
    return ("task_type" if kind == "task_type" else "queue"), name


async def _limit_form(screen: Screen, kind: Kind, name: str) -> Markup:
    fleet = screen.desk.db.insights.fleet
    rows = await fleet.types() if kind == "task_type" else await fleet.depths()
    now: dict[str, Any] = next((row for row in rows if row["name"] == name), {})
    per_key = (
        field("max_per_key", "At a time per concurrency key", now.get("max_per_key"), "number", "no limit")
        if kind == "task_type"
        else ""
    )
    fields = html(
        "{}{}{}{}",
        field("max_running", "At a time", now.get("max_running"), "number", "no limit"),
        per_key,
        field("rate", "Starts", now.get("rate"), "number", "no limit"),
        field("seconds", "in so many seconds", f"{now.get('rate_seconds') or 60:.0f}", "number"),
    )
    return form("limit", f"{kind} {name}", fields, "Set")


def _page(queues: list[dict[str, Any]], may: bool) -> Markup:
    more = f"+ : of the waiting tasks, the {number(COUNTED)} oldest are counted" if _more(queues) else ""
    return card("Queues", queues_table(queues, may=may, full=True), side=more)


def _more(queues: list[dict[str, Any]]) -> bool:
    return any(queue["more"] for queue in queues)


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
    return (
        link("/tasks?queue={}", queue["name"], queue["name"]),
        _state(queue, why=full),
        number(queue["queued"]) + ("+" if queue["more"] and queue["queued"] else ""),
        number(queue["running"]),
        age(queue["oldest_seconds"] or 0.0) if queue["queued"] else None,
        queue["workers"],
    )


def _steering(queue: dict[str, Any], may: bool) -> tuple[Any, ...]:
    return _limits(queue), _acts("queue", queue, may)


def _acts(kind: Kind, row: dict[str, Any], may: bool) -> Markup:
    about = f"{kind} {row['name']}"
    steer = (
        button("Resume", "resume", about, may=may)
        if row["paused"]
        else button("Pause", "ask-pause", about, may=may)
    )
    return acts(button("Limit", "ask-limit", about, may=may), steer)


def _types(types: list[dict[str, Any]], may: bool) -> Markup:
    if not types:
        return Markup("")
    rows = [
        (
            link("/tasks?task_type={}", one["name"], one["name"]),
            _state(one),
            ", ".join(one["queues"]),
            _limits(one),
            _acts("task_type", one, may),
        )
        for one in types
    ]
    heads = ("Task type", "State", "Queues", "Limits", "#Actions")
    return card("Task types", table(heads, rows, caption="Task types", keys=[one["name"] for one in types]))


def _state(row: dict[str, Any], *, why: bool = True) -> Markup:
    reason = row["pause_reason"] if why else None
    told = html(' <span class="dim">{}</span>', reason) if reason else ""
    return badge("paused" if row["paused"] else "flowing") + told


def _limits(queue: dict[str, Any]) -> Markup:
    told = []
    if queue["max_running"] is not None:
        told.append(f"{queue['max_running']} at a time")
    if queue["rate"] is not None:
        told.append(f"{queue['rate']} per {span(queue['rate_seconds']).removeprefix('1 ')}")
    if queue.get("max_per_key") is not None:
        told.append(f"{queue['max_per_key']} per key")
    return html('<span class="keep">{}</span>', ", ".join(told) or "none")


def age(seconds: float) -> str:
    """In coarse steps: a figure that changes with every reading would be sent with every reading."""
    return "fresh" if seconds < 10 else span(seconds // 10 * 10 if seconds < 600 else seconds // 60 * 60)
