"""One task: why it waits, what was tried, what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.markup import (
    badge,
    bar,
    card,
    document,
    empty,
    facts,
    html,
    join,
    link,
    short,
    span,
    table,
    trouble,
    when,
)
from shiftboss.admin.page.runs import parse_id
from shiftboss.admin.page.tasks import HIDDEN, steer_one, task_action
from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Screen


async def build(screen: Screen, id: str) -> None:
    wanted = parse_id(id, "task")
    hide = screen.desk.settings.admin.hide_payloads
    screen.title(f"Task {short(id)}", crumb=link("/tasks", "Tasks"))

    async def read() -> dict[str, Any]:
        row = await screen.desk.db.insights.tasks.detail(wanted)
        if row is None:
            raise NotFound(f"there is no task {id}", hint="it may have been pruned")
        return row | {"params": HIDDEN, "result_data": HIDDEN} if hide else row

    def every(task: Any) -> float:
        return 2.0 if task["status"] in ("Queued", "In Progress") else 15.0

    await screen.live(screen.sampler.reading(("task", id), read, every), _page)
    steer_one(screen)


def _page(task: dict[str, Any], may: bool) -> Markup:
    parts = [card(task["task_type"], _about(task), side=task_action(task, may))]
    if task["why"] and task["status"] in ("Queued", "In Progress"):
        parts.append(card("Why it waits", _why(task["why"])))
    if task["error_message"]:
        parts.append(card("Error", trouble(task["error_message"])))
    parts.append(card("Attempts", _attempts(task["attempts_made"])))
    both = [card("Parameters", document(task["params"]))]
    if task["result_data"] is not None:
        both.append(card("Result", document(task["result_data"])))
    parts.append(html('<div class="grid" style="margin-top:16px">{}</div>', join(both)))
    return join(parts)


def _about(task: dict[str, Any]) -> Markup:
    worker = task["worker_id"] or task["last_worker_id"]
    progress = bar(task["progress"], "Progress") if task["progress"] is not None else None
    waits_for = join(html("{} ", link("/tasks/{}", short(id), id)) for id in task["depends_on"] or ())
    return facts(
        (
            ("Status", badge(task["status"])),
            ("Queue", link("/tasks?queue={}", task["queue"], task["queue"])),
            ("Priority", task["priority"]),
            ("Progress", progress),
            ("Doing", task["progress_message"]),
            ("Worker", link("/workers/{}", worker, worker) if worker else None),
            ("Failed attempts", f"{task['attempts']} of {task['max_attempts']}"),
            ("Made", when(task["created_at"])),
            ("Due", when(task["run_at"])),
            ("Started", when(task["generation_started_at"])),
            ("Ended", when(task["generation_processed_at"])),
            ("Deadline", when(task["deadline"])),
            ("Waits for", waits_for),
            ("Run", link("/runs/{}", short(task["run_id"]), task["run_id"]) if task["run_id"] else None),
            ("Id", html("<code>{}</code>", task["id"])),
        )
    )


def _why(reasons: list[dict[str, Any]]) -> Markup:
    rows = [(reason["reason"], reason["detail"], reason["advice"]) for reason in reasons]
    return table(("Reason", "Detail", "What to do"), rows, caption="Why it waits")


def _attempts(made: list[dict[str, Any]]) -> Markup:
    if not made:
        return empty("Nobody has tried it yet")
    rows = [
        (
            number,
            link("/workers/{}", one["worker_id"], one["worker_id"]) if one["worker_id"] else None,
            badge(one["outcome"]),
            when(one["started_at"]),
            _took(one),
            trouble(one["error"]) if one["error"] else None,
        )
        for number, one in ((one["attempt"], one) for one in made)
    ]
    return table(("#Attempt", "Worker", "Outcome", "Started", "#Took", "Error"), rows, caption="Attempts")


def _took(one: dict[str, Any]) -> str | None:
    if not (one["started_at"] and one["ended_at"]):
        return None
    return span((one["ended_at"] - one["started_at"]).total_seconds())
