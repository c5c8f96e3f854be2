"""Tasks: find them, act on one or on all that a filter means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup

from shiftboss.admin.page.forms import field, select
from shiftboss.admin.page.markup import (
    badge,
    bar,
    button,
    card,
    code,
    empty,
    html,
    join,
    link,
    number,
    short,
    table,
    when,
)
from shiftboss.db.insights import TaskFilter
from shiftboss.db.insights.tasklist import STRETCH
from shiftboss.model.access import Principal
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

    from shiftboss.admin.page.screen import Handler, Screen

STATUSES = ("Queued", "In Progress", "Complete", "Failed", "Cancelled")
SHOWN = 50
HIDDEN = "(hidden)"


async def build(screen: Screen) -> None:
    wanted, cursor = screen.desk.searchable(_wanted(screen.query)), screen.query.get("cursor") or None
    screen.title("Tasks")
    screen.show(await _filter(screen, wanted))
    if screen.may_act:
        screen.show(_bulk(wanted))
    hide = screen.desk.settings.admin.hide_payloads
    base = {name: value for name, value in screen.query.items() if name != "cursor" and value}

    async def read() -> dict[str, Any]:
        page = await screen.desk.db.insights.tasks.page(wanted, cursor, SHOWN)
        return {"items": page.items, "next": page.next, "base": base, "first": cursor is None, "hide": hide}

    key = ("tasks", wanted, cursor)
    await screen.live(screen.sampler.reading(key, read, 5.0 if cursor is None else 60.0), _list)
    _steer(screen, wanted)


def _wanted(query: QueryParams) -> TaskFilter:
    wanted = TaskFilter(
        status=query.get("status") or None,
        task_type=query.get("task_type") or None,
        queue=query.get("queue") or None,
        worker_id=query.get("worker_id") or None,
        text=query.get("text") or None,
        since=_moment(query, "since"),
        until=_moment(query, "until"),
    )
    wanted.statuses()  # refuses one that there is not
    return wanted


def _moment(query: QueryParams, name: str) -> datetime | None:
    text = query.get(name)
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{name} is no time: {text!r}", hint="like 2030-01-31T12:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def _filter(screen: Screen, wanted: TaskFilter) -> Markup:
    insights = screen.desk.db.insights
    queues = [queue["name"] for queue in await insights.fleet.depths()]
    query = screen.query
    return card(
        "Filter",
        html(
            '<form class="filter" method="get" action="/tasks" role="search">{}'
            '<button class="btn main">Show</button><a class="btn" href="/tasks">Clear</a></form>',
            join(
                (
                    select("status", "Status", STATUSES, wanted.status),
                    select("task_type", "Type", await insights.tasks.types(), wanted.task_type),
                    select("queue", "Queue", queues, wanted.queue),
                    field("worker_id", "Worker", wanted.worker_id, placeholder="any"),
                    field("since", "From (UTC)", query.get("since"), "datetime-local"),
                    field("until", "To (UTC)", query.get("until"), "datetime-local"),
                    field("text", "Text in params", wanted.text, "search", "any"),
                )
            ),
        ),
    )


def _bulk(wanted: TaskFilter) -> Markup:
    """For operators: the same action on every task that the filter means."""
    which = "all tasks" if wanted == TaskFilter() else "all tasks of this filter"
    return html(
        '<div class="title"><span class="dim">With {}:</span> {} {}</div>',
        which,
        button("Retry failed", "retry-all", confirm=f"Retry the failed and cancelled among {which}?"),
        button(
            "Cancel live", "cancel-all", confirm=f"Cancel the waiting and running among {which}?", tone="bad"
        ),
    )


def _steer(screen: Screen, wanted: TaskFilter) -> None:
    commands = screen.desk.commands

    async def retry_all(who: Principal, values: dict[str, str]) -> str:
        done = await commands.retry_tasks(who, await commands.matching(who, wanted))
        return f"{number(len(done))} tasks start over"

    async def cancel_all(who: Principal, values: dict[str, str]) -> str:
        found = await commands.cancel_tasks(who, await commands.matching(who, wanted))
        ended = sum(one.status == "Cancelled" or one.cancelling for one in found)
        return f"{number(ended)} tasks are cancelled or asked to stop"

    screen.on("retry-all", retry_all)
    screen.on("cancel-all", cancel_all)
    steer_one(screen)


def steer_one(screen: Screen) -> None:
    from shiftboss.admin.page.runs import parse_id

    commands = screen.desk.commands

    def of(act: Any, told: str) -> Handler:
        async def handler(who: Principal, values: dict[str, str]) -> str:
            await act(who, [parse_id(values["arg"], "task")])
            return told

        return handler

    screen.on("retry-task", of(commands.retry_tasks, "the task starts over"))
    screen.on("cancel-task", of(commands.cancel_tasks, "the task is cancelled or asked to stop"))


def _list(seen: dict[str, Any], may: bool) -> Markup:
    items = seen["items"]
    if not items:
        return card("Tasks", _none(seen)) + _pager(seen)
    rows = [_row(task, may, seen["hide"]) for task in items]
    heads = ("Task", "Type", "Queue", "Status", "Params", "#Failures", "Worker", "Made", "About", "#Action")
    shown = table(heads, rows, caption="Tasks", keys=[task["id"] for task in items])
    bounded = seen["next"] is not None and len(items) < SHOWN
    return card("Tasks", shown, side=_looked() if bounded else "") + _pager(seen)


def _looked() -> str:
    return f"found in a stretch of {number(STRETCH)} tasks of each status; Older goes on from there"


def _none(seen: dict[str, Any]) -> Markup:
    if seen["next"] is not None:
        return empty(
            f"No match in this stretch of {number(STRETCH)} tasks of each status", "Press Older to go on."
        )
    if seen["base"]:
        return empty("No task matches", html("Widen the filter, or {}.", link("/tasks", "show all tasks")))
    sql = "INSERT INTO tasks (task_type, params) VALUES ('hello', '{}')"
    return empty("No task yet", "Enqueue one from your app, or from any SQL client:", code(sql))


def _row(task: dict[str, Any], may: bool, hide: bool) -> tuple[Any, ...]:
    params = HIDDEN if hide else task["params_preview"]
    return (
        link("/tasks/{}", short(task["id"]), task["id"]),
        task["task_type"],
        task["queue"],
        badge("stopping" if task["cancelling"] else task["status"]),
        html('<code class="cut" title="{}">{}</code>', params, params) if params else None,
        f"{task['attempts']}/{task['max_attempts']}",
        link("/workers/{}", task["worker_id"], task["worker_id"]) if task["worker_id"] else None,
        when(task["created_at"]),
        _about(task),
        task_action(task, may),
    )


def _about(task: dict[str, Any]) -> Markup | str | None:
    if task["status"] == "In Progress":
        if task["progress"] is not None:
            return bar(task["progress"], "Progress") + html(" {}", task["progress_message"] or "")
        return html("since {}", when(task["started_at"]))
    told = task["wait_reason"] if task["status"] == "Queued" else task["error_message"]
    return html('<span class="cut" title="{}">{}</span>', told, told) if told else None


def task_action(task: dict[str, Any], may: bool) -> Markup | None:
    if task["status"] in ("Queued", "In Progress"):
        return button("Cancel", "cancel-task", task["id"], confirm="Cancel this task?", may=may)
    if task["status"] in ("Failed", "Cancelled"):
        return button("Retry", "retry-task", task["id"], may=may)
    return None


def _pager(seen: dict[str, Any]) -> Markup:
    back = (
        "" if seen["first"] else html('<a class="btn" href="/tasks?{}">Newest</a>', urlencode(seen["base"]))
    )
    if seen["next"] is None:
        return html('<div class="pager">{}</div>', back)
    onward = urlencode(seen["base"] | {"cursor": seen["next"]})
    return html('<div class="pager">{}<a class="btn" href="/tasks?{}">Older</a></div>', back, onward)
