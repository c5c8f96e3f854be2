"""Schedules: tasks that are enqueued at set times."""

from __future__ import annotations

from typing import Any, cast
from zoneinfo import available_timezones

import orjson

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import Act, Context, Page, Visit
from shiftboss.leader.schedules import Cron, Missed, unknown

MISSED = {"latest": "run the latest", "all": "run all", "skip": "skip all"}
OF_TASK = ("queue", "tenant")
TIME = "%Y-%m-%d %H:%M:%S UTC"


async def view(visit: Visit) -> Context:
    return {
        "schedules": [one | {"where": _where(one["task"])} for one in await visit.admin.reads.schedules.all()]
    }


def _where(task: dict[str, Any]) -> str:
    return " · ".join(str(task[name]) for name in OF_TASK if task.get(name))


def _of(command: str, told: str) -> Act:
    async def act(visit: Visit, form: Form) -> str:
        await getattr(visit.admin.commands, command)(visit.who, form.arg)
        return told.format(form.arg)

    return act


async def _edit(visit: Visit, arg: str) -> Context:
    row = await visit.admin.db.schedules.get(arg) if arg else None
    if arg and row is None:
        raise unknown(arg)
    task = row["task"] if row else {}
    return {
        "row": row or {"name": "", "cron": "", "timezone": "UTC", "missed": "latest"},
        "known": row is not None,
        "task": {name: task.get(name) for name in ("task_type", "priority", "queue", "tenant")},
        "params": None if row and visit.hides else _json(task.get("params")),
        "requires": _json(task.get("requires")),
        "types": await visit.admin.db.insights.tasks.types(),
        "zones": sorted(available_timezones()),
        "missed": MISSED,
    }


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() if value else ""


async def _save(visit: Visit, form: Form) -> str:
    name = form.arg or form.text("name") or ""
    row = await visit.admin.db.schedules.get(name) if name else None
    if form.arg and row is None:
        raise unknown(name)
    cron = Cron(
        name=name,
        cron=form.text("cron") or "",
        task=_task(form, row["task"] if row and form.arg else {}),
        timezone=form.text("timezone") or "UTC",
        missed=cast(Missed, form.text("missed") or "latest"),
    )
    saved = await visit.admin.commands.put_schedule(visit.who, cron)
    return f"{name} is saved. Next run: {saved['next_tick'].strftime(TIME)}"


def _task(form: Form, before: dict[str, Any]) -> dict[str, Any]:
    """Return the task to enqueue. Options that the form does not show keep their values."""
    given: dict[str, Any] = {name: form.text(name) for name in ("task_type", *OF_TASK)}
    given |= {
        "params": form.document("params") or {} if form.flag("params") else before.get("params", {}),
        "priority": form.figure("priority"),
        "requires": form.document("requires"),
    }
    return {name: value for name, value in (before | given).items() if value is not None}


PAGES = (
    Page(
        path="/schedules",
        title="Schedules",
        label="Schedules",
        icon="M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7v5l4 2",
        order=60,
        template="schedules.html",
        view=view,
        acts={
            "pause": _of("pause_schedule", "{} is paused. Runs missed while it is paused are skipped"),
            "resume": _of("resume_schedule", "{} is resumed"),
            "remove": _of("remove_schedule", "{} is removed"),
            "run": _of("run_schedule", "{} is enqueued. Its schedule is unchanged"),
            "save": _save,
        },
        sheets={"edit": _edit},
    ),
)
