"""Workers and slots: who is there, what each does, and orders to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.events import timeline
from shiftboss.admin.page.markup import (
    acts,
    badge,
    bar,
    button,
    card,
    code,
    document,
    empty,
    facts,
    fold,
    html,
    join,
    link,
    number,
    short,
    span,
    table,
    trouble,
    when,
)
from shiftboss.model.access import Principal
from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Handler, Screen

WAKES = frozenset({"event"})


async def build(screen: Screen) -> None:
    screen.title("Workers")
    db = screen.desk.db
    await screen.live(screen.sampler.reading("slots", db.health.slots, 3.0, WAKES), _slots)
    await screen.live(screen.sampler.reading("workers", db.insights.fleet.workers, 5.0, WAKES), _workers)
    _steer(screen)


def _steer(screen: Screen) -> None:
    commands = screen.desk.commands

    def slots(act: Any, told: str) -> Handler:
        async def handler(who: Principal, values: dict[str, str]) -> str:
            await act(who, [values["arg"]] if values["arg"] else None)
            return f"{values['arg'] or 'every slot'} {told}"

        return handler

    def worker(told: str, **flags: bool) -> Handler:
        async def handler(who: Principal, values: dict[str, str]) -> str:
            await commands.steer_worker(who, values["arg"], **flags)
            return f"{values['arg']} {told}"

        return handler

    screen.on("pause-slot", slots(commands.pause_slots, "finishes its task and claims nothing new"))
    screen.on("resume-slot", slots(commands.resume_slots, "claims again"))
    screen.on("restart-slot", slots(commands.restart_slots, "is restarted"))
    screen.on("pause-worker", worker("finishes its tasks and claims nothing new", paused=True))
    screen.on("resume-worker", worker("claims again", paused=False))
    screen.on("drain-worker", worker("finishes its tasks and ends", draining=True))


def _slots(slots: list[dict[str, Any]], may: bool) -> Markup:
    if not slots:
        how = html("Start a supervisor: {}", code("shiftboss supervise module:app default=2"))
        return card("Slots", empty("No slot is supervised", how))
    rows = [
        (
            link("/slots/{}", slot["component"], slot["component"]),
            badge(slot["status"]) + (badge("paused") if slot["paused"] else ""),
            slot["pid"],
            link("/tasks/{}", short(slot["current_job"]), slot["current_job"])
            if slot["current_job"]
            else None,
            when(slot["last_seen"]),
            number(slot["restart_count"]),
            when(slot["last_restart"]),
            slot_actions(slot, may),
        )
        for slot in slots
    ]
    heads = ("Slot", "State", "#Process", "Task", "Last beat", "#Restarts", "Restarted", "#Actions")
    whole = html(
        "{}{}{}",
        button("Pause all", "pause-slot", confirm="Pause every slot?", may=may),
        button("Resume all", "resume-slot", may=may),
        button(
            "Restart all",
            "restart-slot",
            confirm="Restart every slot? Each finishes its task first.",
            may=may,
        ),
    )
    return card(
        "Slots", table(heads, rows, caption="Slots", keys=[slot["component"] for slot in slots]), side=whole
    )


def slot_actions(slot: dict[str, Any], may: bool) -> Markup:
    name = slot["component"]
    steer = (
        button("Resume", "resume-slot", name, may=may)
        if slot["paused"]
        else button("Pause", "pause-slot", name, confirm=f"Pause {name}? It finishes its task.", may=may)
    )
    again = button(
        "Restart", "restart-slot", name, confirm=f"Restart {name}? It finishes its task first.", may=may
    )
    return acts(steer, again)


def _workers(workers: list[dict[str, Any]], may: bool) -> Markup:
    here = [worker for worker in workers if worker["status"] != "terminated"]
    gone = len(workers) - len(here)
    if not here:
        how = html("Start one: {}", code("shiftboss worker module:app"))
        return card("Workers", empty("No worker is in the fleet", how))
    rows = [
        (
            link("/workers/{}", worker["worker_id"], worker["worker_id"]),
            _state(worker),
            _task(worker),
            when(worker["last_heartbeat"]),
            _memory(worker),
            _vram(worker),
            number(worker["processed_today"]),
            f"{worker['error_rate'] * 100:.1f} %",
            worker_actions(worker, may),
        )
        for worker in here
    ]
    heads = ("Worker", "State", "Doing", "Last beat", "#Memory", "#VRAM", "#Today", "#Errors", "#Actions")
    side = f"{len(here)} here" + (f", {gone} gone" if gone else "")
    return card(
        "Workers", table(heads, rows, caption="Workers", keys=[w["worker_id"] for w in here]), side=side
    )


def _state(worker: dict[str, Any]) -> Markup:
    health = worker["health_status"] if worker["status"] == "active" else worker["status"]
    flags = [flag for flag in ("paused", "draining") if worker[flag]]
    return join([badge(health), *map(badge, flags)])


def _task(worker: dict[str, Any]) -> Markup | None:
    if worker["current_task_id"] is None:
        return None
    more = f" and {worker['running_tasks'] - 1} more" if worker["running_tasks"] > 1 else ""
    return link("/tasks/{}", worker["current_task_type"], worker["current_task_id"]) + more


def _memory(worker: dict[str, Any]) -> str | None:
    used = (worker["resource_usage"] or {}).get("memory_mb")
    return None if used is None else f"{float(used):,.0f} MB"


def _vram(worker: dict[str, Any]) -> str | None:
    if not worker["vram_total_mb"]:
        return None
    return f"{worker['vram_used_mb'] or 0:,} of {worker['vram_total_mb']:,} MB"


def worker_actions(worker: dict[str, Any], may: bool) -> Markup:
    id = worker["worker_id"]
    steer = (
        button("Resume", "resume-worker", id, may=may)
        if worker["paused"]
        else button("Pause", "pause-worker", id, confirm=f"Pause {id}? It finishes its tasks.", may=may)
    )
    drain = button(
        "Drain", "drain-worker", id, confirm=f"Drain {id}? It finishes its tasks and ends.", may=may
    )
    return acts(steer, drain)


async def build_worker(screen: Screen, id: str) -> None:
    screen.title(id, crumb=link("/workers", "Workers"))
    db = screen.desk.db

    async def read() -> dict[str, Any]:
        row = await db.insights.fleet.worker(id)
        if row is None:
            raise NotFound(
                f"there is no worker {id!r}", hint="rows of workers that left are pruned after a while"
            )
        return row | {"events": await db.events.latest(50, worker_id=id)}

    await screen.live(screen.sampler.reading(("worker", id), read, 5.0, WAKES), _worker)
    _steer(screen)


def _worker(worker: dict[str, Any], may: bool) -> Markup:
    about = facts(
        (
            ("State", _state(worker)),
            ("Last beat", when(worker["last_heartbeat"])),
            ("Joined", when(worker["created_at"])),
            ("Host", worker["host"]),
            ("Process", worker["pid"]),
            ("Version", worker["version"]),
            ("Region", worker["region"]),
            ("Queues", ", ".join(worker["queues"] or ()) or "all"),
            ("Memory", _memory(worker)),
            ("VRAM", _vram(worker)),
            ("Done today", number(worker["processed_today"])),
            ("Typical task", span(worker["avg_processing_seconds"])),
        )
    )
    held = [
        (
            link("/tasks/{}", task["task_type"], task["id"]),
            task["queue"],
            bar(task["progress"], "Progress") if task["progress"] is not None else None,
            task["progress_message"],
            when(task["started_at"]),
        )
        for task in worker["tasks"]
    ]
    tasks = table(("Task", "Queue", "Progress", "Doing", "Started"), held, caption="Tasks it holds")
    return join(
        (
            card("Worker", about, side=worker_actions(worker, may)),
            card("Tasks it holds", tasks if held else empty("It holds no task")),
            card("Timeline", timeline(worker["events"])),
            card("Capabilities", fold("what it can do", document(worker["capabilities"]))),
        )
    )


async def build_slot(screen: Screen, component: str) -> None:
    screen.title(component, crumb=link("/workers", "Workers"))
    db = screen.desk.db

    async def read() -> dict[str, Any]:
        slot = next((one for one in await db.health.slots() if one["component"] == component), None)
        if slot is None:
            raise NotFound(f"there is no slot {component!r}")
        return slot | {"events": await db.events.latest(50, component=component)}

    await screen.live(screen.sampler.reading(("slot", component), read, 3.0, WAKES), _slot)
    _steer(screen)


def _slot(slot: dict[str, Any], may: bool) -> Markup:
    job, member = slot["current_job"], slot["member_id"]
    about = facts(
        (
            ("State", badge(slot["status"]) + (badge("paused") if slot["paused"] else "")),
            ("Last beat", when(slot["last_seen"])),
            ("Queue", slot["queue"]),
            ("Host", slot["host"]),
            ("Process", slot["pid"]),
            ("Task", link("/tasks/{}", short(job), job) if job else None),
            ("Worker", link("/workers/{}", member, member) if member else None),
            ("Restarts", number(slot["restart_count"])),
            ("In five minutes", number(slot["recent_restarts"])),
            ("Restarted", when(slot["last_restart"])),
            ("Supervised", "yes" if slot["supervised"] else "no"),
        )
    )
    parts = [card("Slot", about, side=slot_actions(slot, may))]
    if slot["error_message"]:
        parts.append(card("Last error", trouble(slot["error_message"])))
    return join([*parts, card("Timeline", timeline(slot["events"]))])
