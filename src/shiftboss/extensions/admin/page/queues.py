"""Queues, task types and tenants: depth, age, pauses, limits and fair shares."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, cast

from shiftboss.extensions.admin.page.charts import ended
from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import Context, Page, Visit
from shiftboss.extensions.admin.page.words import span
from shiftboss.model.errors import UsageError
from shiftboss.operations.operations import Kind

RATE_PER = {"all": "all tasks together", "key": "each concurrency key", "tenant": "each tenant"}
MOST_TENANTS = 200


async def view(visit: Visit) -> Context:
    insights = visit.admin.reads.insights
    queues = await insights.fleet.depths(fresh=True)
    sparks = await insights.series.per_queue()
    return {
        "queues": [
            one | {"limits": _limits(one), "spark": ended(sparks.get(one["name"], []))} for one in queues
        ],
        "types": [one | {"limits": _limits(one)} for one in await insights.fleet.types()],
        **await _fairness(visit),
        "long": any(queue["counted"] for queue in queues),
    }


async def _fairness(visit: Visit) -> Context:
    fairness = visit.admin.db.fairness
    every = await fairness.ageing()
    tenants = await fairness.tenants()
    return {
        "tenants": tenants[:MOST_TENANTS],
        "left_out": len(tenants) - MOST_TENANTS,
        "ageing": None if every is None else span(every.total_seconds()),
    }


def _limits(row: Any) -> str:
    told = []
    if row["max_running"] is not None:
        told.append(f"{row['max_running']} at a time")
    if row["rate"] is not None:
        each = "" if row["rate_per"] == "all" else f" for {RATE_PER[row['rate_per']]}"
        told.append(f"{row['rate']} per {span(row['rate_seconds']).removeprefix('1 ')}{each}")
    if row.get("max_per_key") is not None:
        told.append(f"{row['max_per_key']} per key")
    if row.get("limits_set_by") == "code":
        told[-1] += " (in code)"
    elif row.get("limits_in_code"):
        told = [(", ".join(told) or "none") + " (overrides the code)"]
    return ", ".join(told)


def _named(arg: str) -> tuple[Kind, str]:
    """Parse the target of an action: `queue mail` or `task_type render`."""
    kind, _, name = arg.partition(" ")
    if not name:
        raise UsageError("the queue or task type is missing")
    return ("task_type" if kind == "task_type" else "queue"), name


async def _ask_pause(visit: Visit, arg: str) -> Context:
    return {"name": _named(arg)[1]}


async def _pause(visit: Visit, form: Form) -> str:
    kind, name = _named(form.arg)
    await visit.admin.commands.pause_queue(visit.who, name, form.text("reason"), kind)
    return f"{name} is paused. Running tasks finish; waiting tasks stay in the queue"


async def _resume(visit: Visit, form: Form) -> str:
    kind, name = _named(form.arg)
    await visit.admin.commands.resume_queue(visit.who, name, kind)
    return f"{name} is resumed"


async def _ask_limit(visit: Visit, arg: str) -> Context:
    kind, name = _named(arg)
    fleet = visit.admin.db.insights.fleet
    rows = await fleet.types() if kind == "task_type" else await fleet.depths()
    known = ("max_running", "max_per_key", "rate", "rate_seconds", "rate_per")
    nothing: dict[str, Any] = dict.fromkeys(known)
    row = next((nothing | row for row in rows if row["name"] == name), nothing)
    return {"name": name, "kind": kind, "row": row, "rate_per": RATE_PER}


async def _limit(visit: Visit, form: Form) -> str:
    kind, name = _named(form.arg)
    rate, most, per_key = form.figure("rate"), form.figure("max_running"), form.figure("max_per_key")
    period = timedelta(seconds=form.figure("seconds") or 60) if rate else None
    each = form.text("rate_per") or "all"
    if each not in RATE_PER:
        raise UsageError(f"rate_per must be one of {', '.join(RATE_PER)}, not {each!r}")
    await visit.admin.commands.limit_queue(
        visit.who, name, most, rate, period, kind=kind, max_per_key=per_key,
        rate_per=cast(Literal["all", "key", "tenant"], each),
    )  # fmt: skip
    return f"The limits of {name} are set" if most or rate or per_key else f"The limits of {name} are removed"


async def _reset(visit: Visit, form: Form) -> str:
    kind, name = _named(form.arg)
    await visit.admin.commands.reset_limit(visit.who, name, kind)
    return f"{name} uses the limits from code"


async def _ask_weight(visit: Visit, arg: str) -> Context:
    tenants = {one["name"]: one["weight"] for one in await visit.admin.db.fairness.tenants()}
    return {"name": arg, "weight": tenants.get(arg, 1.0), "tenants": list(tenants)[:MOST_TENANTS]}


async def _weight(visit: Visit, form: Form) -> str:
    name, weight = form.arg or form.text("name"), form.amount("weight")
    if not name:
        raise UsageError("the tenant is missing")
    await visit.admin.commands.set_tenant_weight(visit.who, name, weight)
    return f"{name} has weight {weight or 1:g}"


async def _ask_age(visit: Visit, arg: str) -> Context:
    every = await visit.admin.db.fairness.ageing()
    return {"minutes": None if every is None else f"{every.total_seconds() / 60:g}"}


async def _age(visit: Visit, form: Form) -> str:
    minutes = form.amount("minutes")
    await visit.admin.commands.set_ageing(visit.who, timedelta(minutes=minutes) if minutes else None)
    return "Priority ageing is on" if minutes else "Priority ageing is off"


PAGES = (
    Page(
        path="/queues",
        title="Queues",
        label="Queues",
        icon="M4 7h16M4 12h16M4 17h10",
        order=50,
        template="queues.html",
        view=view,
        wakes=frozenset({"event"}),
        acts={
            "pause": _pause,
            "resume": _resume,
            "limit": _limit,
            "reset": _reset,
            "weight": _weight,
            "age": _age,
        },
        sheets={"pause": _ask_pause, "limit": _ask_limit, "weight": _ask_weight, "age": _ask_age},
    ),
)
