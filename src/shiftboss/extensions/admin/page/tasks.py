"""The list of tasks with filters, error groups, and actions on one, several or all matching tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from shiftboss.db.insights import TaskFilter
from shiftboss.db.insights.rows import ListedTask
from shiftboss.db.insights.tasklist import STRETCH
from shiftboss.extensions.admin.backend import HIDDEN
from shiftboss.extensions.admin.page import newtask
from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import Act, Context, Page, Visit
from shiftboss.extensions.admin.page.words import count
from shiftboss.model.errors import NotFound, UsageError

STATUSES = {
    "Queued": "waiting", "In Progress": "running", "Complete": "complete",
    "Failed": "failed", "Cancelled": "cancelled",
}  # fmt: skip
# The filters, and the names shown on their chips.
NAMES = {
    "status": "status", "task_type": "type", "queue": "queue", "worker_id": "worker", "since": "from",
    "until": "to", "text": "text",
}  # fmt: skip
SHOWN = 50
Change = Callable[[Visit, list[UUID]], Awaitable[str]]


async def view(visit: Visit) -> Context:
    wanted, cursor = visit.admin.searchable(_filter(visit)), visit.wanted("cursor")
    insights = visit.admin.reads.insights
    page = await insights.tasks.page(wanted, cursor, SHOWN)
    chosen = {name: value for name in NAMES if (value := visit.wanted(name))}
    groups = wanted.status in (None, "Failed") and cursor is None and set(chosen) <= {"status"}
    return {
        "groups": await insights.errors.open_groups() if groups else [],
        "hide": visit.hides,
        "items": [_item(row, visit.hides) for row in page.items],
        "next": urlencode(chosen | {"cursor": page.next}) if page.next else None,
        "first": cursor is None,
        "newest": urlencode(chosen),
        "chips": _chips(chosen),
        "chosen": chosen,
        "filled": dict.fromkeys(NAMES) | chosen,
        "bounded": page.next is not None and len(page.items) < SHOWN,
        "stretch": STRETCH // len(wanted.statuses()),
        "statuses": STATUSES,
        "types": await insights.tasks.types(),
        "queues": [queue["name"] for queue in await insights.fleet.depths()],
        "searchable": not visit.hides,
    }


def _filter(visit: Visit) -> TaskFilter:
    wanted = TaskFilter(
        status=visit.wanted("status"),
        task_type=visit.wanted("task_type"),
        queue=visit.wanted("queue"),
        worker_id=visit.wanted("worker_id"),
        text=visit.wanted("text"),
        since=_moment(visit, "since"),
        until=_moment(visit, "until"),
    )
    wanted.statuses()  # raises UsageError for an unknown status
    return wanted


def _moment(visit: Visit, name: str) -> datetime | None:
    text = visit.wanted(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{name} is not a time: {text!r}", hint="write it as 2030-01-31T12:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _chips(chosen: dict[str, str]) -> list[dict[str, str]]:
    """Return each active filter with the query of the list without it."""
    return [
        {
            "name": NAMES[name],
            "value": STATUSES.get(value, value) if name == "status" else value,
            "without": urlencode({key: one for key, one in chosen.items() if key != name}),
        }
        for name, value in chosen.items()
    ]


def _item(row: ListedTask, hide: bool) -> Context:
    took = None
    if row["started_at"] and row["ended_at"]:
        took = (row["ended_at"] - row["started_at"]).total_seconds()
    params = HIDDEN if hide else row["params_preview"]
    return {**row, "took": took, "params_preview": params, "about": _about(row)}


def _about(row: ListedTask) -> str | None:
    if row["status"] == "In Progress":
        return row["progress_message"] or None
    return (row["wait_reason"] if row["status"] == "Queued" else row["error_message"]) or None


def parse_id(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"{text!r} is not a {what} ID") from None


async def retry_one(visit: Visit, form: Form) -> str:
    await visit.admin.commands.retry_tasks(visit.who, [parse_id(form.arg, "task")])
    return "The task is queued again"


async def run_now(visit: Visit, form: Form) -> str:
    await visit.admin.commands.run_tasks_now(visit.who, [parse_id(form.arg, "task")])
    return "The task is due now"


async def cancel_one(visit: Visit, form: Form) -> str:
    await visit.admin.commands.cancel_tasks(visit.who, [parse_id(form.arg, "task")])
    return "The task is cancelled, or will stop soon if it is running"


def _selection(change: Change) -> Act:
    """Return an action on the selected tasks."""

    async def act(visit: Visit, form: Form) -> str:
        return await change(visit, _selected(form))

    return act


def _all(change: Change, *statuses: str) -> Act:
    """Return an action on all tasks that match the filter, with one of these statuses if it has none."""

    async def act(visit: Visit, form: Form) -> str:
        wanted = visit.admin.searchable(_filter(visit))
        filters = [wanted] if wanted.status else [replace(wanted, status=status) for status in statuses]
        found = [await visit.admin.commands.matching(visit.who, one) for one in filters]
        return await change(visit, [id for ids in found for id in ids])

    return act


async def _retry_group(visit: Visit, form: Form) -> str:
    return f"{count(len(await visit.admin.commands.retry_errors(visit.who, form.arg)), 'task')} queued again"


def _selected(form: Form) -> list[UUID]:
    found = [parse_id(text, "task") for text in form.all("id")]
    if not found:
        raise UsageError("no task is selected", hint="select the check boxes of the tasks first")
    return found


async def _retry(visit: Visit, ids: list[UUID]) -> str:
    return f"{count(len(await visit.admin.commands.retry_tasks(visit.who, ids)), 'task')} queued again"


async def _cancel(visit: Visit, ids: list[UUID]) -> str:
    found = await visit.admin.commands.cancel_tasks(visit.who, ids)
    ended = sum(one.status == "Cancelled" or one.cancelling for one in found)
    return f"{count(ended, 'task')} cancelled or stopping"


def every(context: Context) -> float:
    return 5.0 if context["first"] else 60.0


PAGES = (
    Page(
        path="/tasks",
        title="Tasks",
        label="Tasks",
        icon="M9 6h11M9 12h11M9 18h11M4 6h.01M4 12h.01M4 18h.01",
        order=20,
        template="tasks.html",
        view=view,
        every=every,
        acts={
            "retry-task": retry_one,
            "cancel-task": cancel_one,
            "retry-all": _all(_retry, "Failed", "Cancelled"),
            "cancel-all": _all(_cancel, "Queued", "In Progress"),
            "retry-selected": _selection(_retry),
            "cancel-selected": _selection(_cancel),
            "retry-group": _retry_group,
            "create": newtask.create,
        },
        sheets={"new": newtask.ask},
    ),
)
