"""Schedules: what is enqueued again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from zoneinfo import available_timezones

import orjson
from markupsafe import Markup

from shiftboss.admin.page.forms import area, document_of, field, figure, form, select, text
from shiftboss.admin.page.markup import acts, badge, button, card, code, empty, html, link, short, table, when
from shiftboss.coordinator.cron import Cron, Missed, unknown
from shiftboss.model.access import Principal, Role

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Handler, Screen

LATE = {"latest": "fire the latest", "all": "fire all", "skip": "skip"}
OF_TASK = ("queue", "tenant")
NOW = "%Y-%m-%d %H:%M:%S UTC"


async def build(screen: Screen) -> None:
    screen.title("Schedules", side=button("Add schedule", "edit", may=screen.may_act, tone="main"))
    await screen.live(screen.sampler.reading("schedules", screen.desk.db.schedules.all, 5.0), _page)
    commands = screen.desk.commands

    def of(act: Any, told: str) -> Handler:
        async def handler(who: Principal, values: dict[str, str]) -> str:
            await act(who, values["arg"])
            return told.format(values["arg"])

        return handler

    screen.on("pause", of(commands.pause_schedule, "{} is paused; ticks that pass are not made up for"))
    screen.on("resume", of(commands.resume_schedule, "{} goes on with its next tick"))
    screen.on("remove", of(commands.remove_schedule, "{} is removed"))
    screen.on("run", of(commands.run_schedule, "{} is enqueued; its ticks stay as they are"))
    screen.on("edit", _edit(screen))
    screen.on("save", _save(screen))


def _edit(screen: Screen) -> Handler:
    async def edit(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.OPERATOR)
        row = await screen.desk.db.schedules.get(values["arg"]) if values["arg"] else None
        types = await screen.desk.db.insights.tasks.types()
        screen.sheet(f"Change {row['name']}" if row else "Add a schedule", _form(row or {}, types))
        return ""

    return edit


def _form(row: dict[str, Any], types: list[str]) -> Markup:
    task = row.get("task", {})
    fields = html(
        "{}" * 10,
        field("name", "Name", row.get("name"), placeholder="nightly", needed=True, fixed=bool(row)),
        field("task_type", "Task type", task.get("task_type"), known=types, needed=True),
        field("cron", "Cron", row.get("cron"), placeholder="0 3 * * *", needed=True),
        field("timezone", "Time zone", row.get("timezone", "UTC"), known=sorted(available_timezones())),
        select("missed", "Ticks that were missed", LATE, row.get("missed", "latest"), none=None),
        field("priority", "Priority, 0 to 100", task.get("priority"), "number", "5"),
        field("queue", "Queue", task.get("queue"), placeholder="default"),
        field("tenant", "Tenant", task.get("tenant"), placeholder="none"),
        area("params", "Params, a JSON object", _json(task.get("params")), "{}"),
        area("requires", "Requires of a worker, a JSON object", _json(task.get("requires")), '{"gpu": true}'),
    )
    return form("save", row.get("name", ""), fields, "Save" if row else "Add")


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() if value else ""


def _save(screen: Screen) -> Handler:
    async def save(who: Principal, values: dict[str, str]) -> str:
        name = values["arg"] or text(values, "name") or ""
        row = await screen.desk.db.schedules.get(name)
        if values["arg"] and row is None:
            raise unknown(name)
        cron = Cron(
            name=name,
            cron=text(values, "cron") or "",
            task=_task(values, row["task"] if row and values["arg"] else {}),
            timezone=text(values, "timezone") or "UTC",
            missed=cast(Missed, values.get("missed", "latest")),
        )
        saved = await screen.desk.commands.put_schedule(who, cron)
        return f"{name} is saved; its next tick is at {saved['next_tick'].strftime(NOW)}"

    return save


def _task(values: dict[str, str], before: dict[str, Any]) -> dict[str, Any]:
    """What is to be enqueued. What this form does not show stays as it was."""
    given: dict[str, Any] = {name: text(values, name) for name in ("task_type", *OF_TASK)}
    given |= {
        "params": document_of(values, "params") or {},
        "priority": figure(values, "priority"),
        "requires": document_of(values, "requires"),
    }
    return {name: value for name, value in (before | given).items() if value is not None}


def _page(schedules: list[dict[str, Any]], may: bool) -> Markup:
    if not schedules:
        how = html("Decorate a task with {}, or: {}", code("@app.cron"), code("shiftboss schedule add"))
        return card("Schedules", empty("Nothing is scheduled", how))
    rows = [
        (
            row["name"],
            badge("paused" if row["paused"] else "active"),
            html('{} <span class="dim">{}</span>', code(row["cron"]), row["timezone"]),
            html("{} {}", row["task"]["task_type"], _where(row["task"])),
            None if row["paused"] else when(row["next_tick"]),
            when(row["last_tick"]),
            link("/tasks/{}", short(row["last_task_id"]), row["last_task_id"])
            if row["last_task_id"]
            else None,
            _acts(row, may),
        )
        for row in schedules
    ]
    heads = ("Name", "State", "When", "Task", "Next", "Last", "Last task", "#Actions")
    return card("Schedules", table(heads, rows, caption="Schedules", keys=[row["name"] for row in schedules]))


def _where(task: dict[str, Any]) -> Markup | str:
    told = " · ".join(str(task[name]) for name in OF_TASK if task.get(name))
    return html('<span class="dim">{}</span>', told) if told else ""


def _acts(row: dict[str, Any], may: bool) -> Markup:
    name = row["name"]
    steer = (
        button("Resume", "resume", name, may=may)
        if row["paused"]
        else button("Pause", "pause", name, confirm=f"Pause {name}?", may=may)
    )
    return acts(
        button("Run now", "run", name, confirm=f"Enqueue {name} once, now?", may=may),
        button("Edit", "edit", name, may=may),
        steer,
        button("Remove", "remove", name, confirm=f"Remove {name} for good?", may=may, tone="bad"),
    )
