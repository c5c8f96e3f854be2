"""Workers grouped by host, with actions. A slot and its worker share one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiftboss.db.insights.fleet import UsageLines
from shiftboss.extensions.admin.page.charts import spark
from shiftboss.extensions.admin.page.events import toned
from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import Act, Context, Page, Visit
from shiftboss.model.errors import NotFound, UsageError

WAKES = frozenset({"event"})


async def view(visit: Visit) -> Context:
    db = visit.admin.reads
    lines = await db.insights.fleet.usage()
    workers = {one["worker_id"]: one | _lines(lines, one) for one in await db.insights.fleet.workers()}
    slots = await db.health.slots()
    rows = [_slot_row(slot, workers.pop(slot["member_id"], None)) for slot in slots]
    rows += [_worker_row(one) for one in workers.values() if one["status"] == "active"]
    left = [one for one in workers.values() if one["status"] == "inactive"]
    hosts: dict[str, list[Context]] = {}
    for row in sorted(rows, key=lambda row: (row["host"] or "", row["name"])):
        hosts.setdefault(row["host"] or "unknown host", []).append(row)
    pools: dict[tuple[str, str], int] = {}
    for slot in slots:
        if slot["supervised"]:
            pools[slot["host"], slot["queue"]] = pools.get((slot["host"], slot["queue"]), 0) + 1
    return {"hosts": hosts, "slots": bool(slots), "pools": pools, "left": left}


def _slot_row(slot: Any, worker: Any | None) -> Context:
    doing = _doing(worker) if worker else None
    if doing is None and slot["current_job"]:
        doing = {"id": slot["current_job"], "type": None, "more": 0}
    return _figures(worker) | {
        "name": slot["component"],
        "href": f"/slots/{slot['component']}",
        "slot": True,
        "host": slot["host"],
        "states": [slot["status"], *(["paused"] if slot["paused"] else [])],
        "doing": doing,
        "pid": slot["pid"],
        "seen": slot["last_seen"],
        "restarts": slot["restart_count"],
        "paused": slot["paused"],
    }


def _worker_row(worker: Any) -> Context:
    return _figures(worker) | {
        "name": worker["worker_id"],
        "href": f"/workers/{worker['worker_id']}",
        "slot": False,
        "host": worker["host"],
        "states": states(worker),
        "doing": _doing(worker),
        "pid": worker["pid"],
        "seen": worker["last_heartbeat"],
        "restarts": None,
        "paused": worker["paused"],
    }


def states(worker: Any) -> list[str]:
    health = worker["health_status"] if worker["status"] == "active" else worker["status"]
    return [health, *(flag for flag in ("paused", "draining") if worker[flag])]


def _doing(worker: Any) -> Context | None:
    if worker["current_task_id"] is None:
        return None
    more = max(worker["running_tasks"] - 1, 0)
    return {"id": worker["current_task_id"], "type": worker["current_task_type"], "more": more}


def _figures(worker: Any | None) -> Context:
    """Return what a worker uses and has done: None for each figure of a slot without a worker."""
    if worker is None:
        names = ("load", "memory", "vram", "version", "today", "errors", "memory_line", "load_line")
        return dict.fromkeys(names)
    return usage(worker) | {
        "memory_line": worker["memory_line"],
        "load_line": worker["load_line"],
        "version": worker["version"],
        "today": worker["processed_today"],
        "errors": worker["error_rate"],
    }


def usage(worker: Any) -> Context:
    used, total = worker["resource_usage"] or {}, worker["vram_total_mb"]
    return {
        "memory": _number(used.get("memory_mb"), "MB"),
        "load": _number(used.get("cpu_percent"), "%"),
        "vram": f"{worker['vram_used_mb'] or 0:,} of {total:,} MB" if total else None,
    }


def _number(value: Any, unit: str) -> str | None:
    return f"{value:,.0f} {unit}" if isinstance(value, int | float) else None  # workers report any JSON


def _lines(lines: UsageLines, worker: Any) -> Context:
    """Return sparklines of memory and load in the last half hour, or None with fewer than two samples."""
    known = lines.get(worker["worker_id"], {})
    return {
        "memory_line": _line(known.get("memory_mb", []), "memory, up to {:,.0f} MB in the last 30 minutes"),
        "load_line": _line(known.get("cpu_percent", []), "load, up to {:,.0f} % in the last 30 minutes"),
    }


def _line(values: Sequence[float | None], told: str) -> Context | None:
    known = [value for value in values if value is not None]
    return spark(known, told.format(max(known))) if len(known) > 1 else None


async def view_worker(visit: Visit) -> Context:
    id, db = visit.params["id"], visit.admin.db
    row = await db.insights.fleet.worker(id)
    if row is None:
        raise NotFound(f"worker {id!r} does not exist", hint="stopped workers are deleted after a while")
    lines = _lines(await db.insights.fleet.usage(), row)
    events = toned(await db.events.latest(50, worker_id=id))
    return {"worker": row, "states": states(row), "events": events, **usage(row), **lines}


async def view_slot(visit: Visit) -> Context:
    name, db = visit.params["component"], visit.admin.db
    slot = next((one for one in await db.health.slots() if one["component"] == name), None)
    if slot is None:
        raise NotFound(f"slot {name!r} does not exist")
    return {"slot": slot, "events": toned(await db.events.latest(50, component=name))}


def _slots(command: str, told: str, paused: bool | None = None) -> Act:
    async def act(visit: Visit, form: Form) -> str:
        await getattr(visit.admin.commands, command)(visit.who, [form.arg] if form.arg else None)
        if form.arg or paused is None:
            return f"{form.arg or 'Every slot'} {told}"
        for worker in await visit.admin.db.workers.unsupervised():
            await visit.admin.commands.steer_worker(visit.who, worker, paused=paused)
        return f"Every worker {told}"

    return act


def _steer(told: str, **flags: bool) -> Act:
    async def act(visit: Visit, form: Form) -> str:
        await visit.admin.commands.steer_worker(visit.who, form.arg, **flags)
        return f"{form.arg} {told}"

    return act


async def _ask_scale(visit: Visit, arg: str) -> Context:
    return {"pools": (await view(visit))["pools"]}


async def _scale(visit: Visit, form: Form) -> str:
    host, _, queue = (form.text("pool") or "").partition(" ")
    wanted = form.figure("count")
    if wanted is None or not queue:
        raise UsageError("count is missing", hint="enter the number of workers for this queue")
    where = await visit.admin.commands.scale(visit.who, queue, wanted, host or None)
    return f"{queue} is scaled to {wanted} on {where}"


ACTS: dict[str, Act] = {
    "pause-slot": _slots("pause_slots", "finishes its task and claims no new ones", paused=True),
    "resume-slot": _slots("resume_slots", "is resumed", paused=False),
    "restart-slot": _slots("restart_slots", "is being restarted"),
    "pause-worker": _steer("finishes its tasks and claims no new ones", paused=True),
    "resume-worker": _steer("is resumed", paused=False),
    "drain-worker": _steer("finishes its tasks and exits", draining=True),
    "scale": _scale,
}

PAGES = (
    Page(
        path="/workers",
        title="Workers",
        label="Workers",
        icon="M5 5h14v6H5zM5 14h14v5H5zM8 8h.01M8 16.5h.01",
        order=30,
        template="workers.html",
        view=view,
        every=3.0,
        wakes=WAKES,
        acts=ACTS,
        sheets={"scale": _ask_scale},
    ),
    Page(
        path="/workers/{id:path}",
        title="Worker",
        template="worker.html",
        view=view_worker,
        wakes=WAKES,
        acts=ACTS,
    ),
    Page(
        path="/slots/{component:path}",
        parent="/workers",
        title="Slot",
        template="slot.html",
        view=view_slot,
        every=3.0,
        wakes=WAKES,
        acts=ACTS,
    ),
)
