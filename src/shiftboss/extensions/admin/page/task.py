"""The page of one task: its state, timeline, payloads and dependencies, and a form to run it again."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import Any

import orjson

from shiftboss.extensions.admin.backend import HIDDEN
from shiftboss.extensions.admin.page.approvals import answer, questions
from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.graph import graph
from shiftboss.extensions.admin.page.newtask import arguments, enqueue
from shiftboss.extensions.admin.page.site import ActResult, Context, Page, Visit
from shiftboss.extensions.admin.page.story import SHOWN_LOGS, emitted, logged, stories, timeline
from shiftboss.extensions.admin.page.tasks import cancel_one, parse_id, retry_one, run_now
from shiftboss.model.codec import Sealed
from shiftboss.model.errors import NotFound

LIVE = ("Queued", "In Progress")


async def view(visit: Visit) -> Context:
    task = await _task(visit)
    if visit.hides:
        task = task | {"params": HIDDEN, "result_data": HIDDEN if task["result_data"] is not None else None}
    due = task["status"] == "Queued" and task["hold"] is None and task["run_at"] is not None
    relatives = await visit.admin.db.insights.life.relatives(task["id"])
    return {
        "task": task,
        "live": task["status"] in LIVE,
        "due": due,
        "later": due and task["run_at"] > datetime.now(UTC),
        "story": await timeline(visit, task),
        "stream": await emitted(visit, task["id"]),
        "graph": graph(relatives, task["id"]),
        "questions": await questions(visit, task["id"]) if task["hold"] == "event" else [],
        "logs": await logged(visit, task["id"]),
        "most_logs": SHOWN_LOGS,
        "commands": None if visit.hides or isinstance(task["params"], Sealed) else _commands(task),
        "hide": visit.hides,
    }


async def _task(visit: Visit) -> dict[str, Any]:
    id = parse_id(visit.params["id"], "task")
    row = await visit.admin.db.insights.tasks.detail(id)
    if row is None:
        raise NotFound(
            f"task {id} does not exist", hint="finished tasks are deleted after leader.keep_tasks_days"
        )
    return row


def _commands(task: dict[str, Any]) -> dict[str, str]:
    """Return the commands that enqueue the same task from a shell and from Python."""
    params = orjson.dumps(task["params"], default=str).decode()
    shell = f"shiftboss submit {shlex.quote(task['task_type'])} --params {shlex.quote(params)}"
    shell += f" --queue {shlex.quote(task['queue'])}"
    named = f"app.task_named({task['task_type']!r}).options(queue={task['queue']!r})"
    return {"CLI": shell, "Python": f"await {named}.enqueue(**{task['params']!r})"}


async def _ask_again(visit: Visit, arg: str) -> Context:
    task = await _task(visit)
    given = {} if visit.hides else task["params"]
    return {"task": task, **await arguments(visit, task["task_type"], given, as_json=arg == "json")}


async def _again(visit: Visit, form: Form) -> ActResult:
    return await enqueue(visit, form, (await _task(visit))["task_type"], as_json=form.arg != "form")


def every(context: Context) -> float:
    return 2.0 if context["live"] else 15.0


def pages() -> tuple[Page, ...]:
    return (
        Page(
            path="/tasks/{id}",
            title="Task",
            template="task.html",
            view=view,
            every=every,
            acts={
                "retry-task": retry_one,
                "run-now": run_now,
                "cancel-task": cancel_one,
                "again": _again,
                "answer": answer,
            },
            sheets={"again": _ask_again},
            folders=tuple(story.templates for story in stories()),
        ),
    )
