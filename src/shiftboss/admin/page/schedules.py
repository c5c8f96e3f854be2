"""Schedules: what is enqueued again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.markup import badge, button, card, code, empty, html, link, short, table, when
from shiftboss.model.access import Principal

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Screen


async def build(screen: Screen) -> None:
    screen.title("Schedules")
    await screen.live(screen.sampler.reading("schedules", screen.desk.db.schedules.all, 5.0), _page)
    commands = screen.desk.commands

    async def pause(who: Principal, values: dict[str, str]) -> str:
        await commands.pause_schedule(who, values["arg"])
        return f"{values['arg']} is paused; ticks that pass are not made up for"

    async def resume(who: Principal, values: dict[str, str]) -> str:
        await commands.resume_schedule(who, values["arg"])
        return f"{values['arg']} goes on with its next tick"

    async def remove(who: Principal, values: dict[str, str]) -> str:
        await commands.remove_schedule(who, values["arg"])
        return f"{values['arg']} is removed"

    screen.on("pause", pause)
    screen.on("resume", resume)
    screen.on("remove", remove)


def _page(schedules: list[dict[str, Any]], may: bool) -> Markup:
    if not schedules:
        how = html(
            "Decorate a task with {}, or: {}", code("@app.cron"), code("shiftboss schedule add --help")
        )
        return card("Schedules", empty("Nothing is scheduled", how))
    rows = [
        (
            row["name"],
            badge("paused" if row["paused"] else "active"),
            html("{} {}", code(row["cron"]), row["timezone"]),
            row["task"]["task_type"],
            None if row["paused"] else when(row["next_tick"]),
            when(row["last_tick"]),
            link("/tasks/{}", short(row["last_task_id"]), row["last_task_id"])
            if row["last_task_id"]
            else None,
            row["missed"],
            _acts(row, may),
        )
        for row in schedules
    ]
    heads = ("Name", "State", "When", "Task", "Next", "Last", "Last task", "Missed ticks", "#Actions")
    return card("Schedules", table(heads, rows, caption="Schedules", keys=[row["name"] for row in schedules]))


def _acts(row: dict[str, Any], may: bool) -> Markup:
    name = row["name"]
    steer = (
        button("Resume", "resume", name, may=may)
        if row["paused"]
        else button("Pause", "pause", name, confirm=f"Pause {name}?", may=may)
    )
    gone = button("Remove", "remove", name, confirm=f"Remove {name} for good?", may=may, tone="bad")
    return html('<span class="acts">{}{}</span>', steer, gone)
