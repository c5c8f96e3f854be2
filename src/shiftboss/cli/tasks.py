"""`shiftboss tasks`: inspect, retry and cancel tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import (
    Columns,
    Json,
    Limit,
    Row,
    TaskId,
    ask,
    console,
    count,
    on_terminal,
    parse_span,
    say_json,
    short_ids,
    show_facts,
    show_rows,
    span,
    step_name,
    task_id,
    text,
)
from shiftboss.cli.waiting import Timeout, waiting
from shiftboss.model.codec import shown
from shiftboss.model.errors import NotFound, UsageError
from shiftboss.model.step import IN_STEP

if TYPE_CHECKING:
    from uuid import UUID

    from shiftboss.db import Database
    from shiftboss.db.insights import TaskFilter
    from shiftboss.operations import Operations

app = typer.Typer(help="List, show, retry and cancel tasks.", add_completion=False, no_args_is_help=True)

StatusOption = Annotated[
    str | None, typer.Option("--status", "-s", help="queued, running, complete, failed or cancelled")
]
TypeOption = Annotated[str | None, typer.Option("--type", "-t", help="only this task type")]
QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="only this queue")]

WORDS = {
    "queued": "Queued",
    "running": "In Progress",
    "in progress": "In Progress",
    "complete": "Complete",
    "completed": "Complete",
    "failed": "Failed",
    "cancelled": "Cancelled",
}
COLUMNS: Columns = {
    "id": "id",
    "status": "status",
    "task": "task_type",
    "queue": "queue",
    "failed": lambda row: f"{row['attempts']}/{row['max_attempts']}",  # attempts
    "at": "at",
    "what": lambda row: _what(row),
}
STEPS: Columns = {
    "step": step_name,
    "kind": "kind",
    "state": "state",
    "attempt": "attempt",
    "started": "started_at",
    "took": lambda row: _took(row["started_at"], row["ended_at"]),
    "until": "until",
    "result": lambda row: first_line(_json(row["child_id"] if row["result"] is None else row["result"])),
}
ATTEMPTS: Columns = {
    "attempt": "attempt",
    "outcome": "outcome",
    "worker": "worker_id",
    "started": "started_at",
    "took": lambda row: _took(row["started_at"], row["ended_at"]),
    "error": lambda row: first_line(row["error"]),
}


@app.command("list")
def list_(
    status: StatusOption = None,
    task_type: TypeOption = None,
    queue: QueueOption = None,
    worker: Annotated[str | None, typer.Option("--worker", "-w", help="only tasks of this worker")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="only tasks from this time on, such as 2h")
    ] = None,
    search: Annotated[
        str | None, typer.Option("--search", help="only tasks whose arguments contain this text")
    ] = None,
    limit: Limit = 30,
    cursor: Annotated[str | None, typer.Option("--cursor", help="continue after the previous page")] = None,
    as_json: Json = False,
) -> None:
    """List tasks, newest first.

    Example: shiftboss tasks list --status failed --since 2h
    """
    wanted = chosen(status, task_type, queue, worker_id=worker, text=search, since=since)
    page = ask(lambda db: db.insights.tasks.page(wanted, cursor, limit))
    if as_json:
        say_json({"items": page.items, "next": page.next})
        return
    size = short_ids([row["id"] for row in page.items]) if on_terminal() else None
    columns: Columns = {**COLUMNS, "id": lambda row: str(row["id"])[:size]}
    show_rows(page.items, columns, empty="no tasks")
    if page.next and on_terminal():
        console().print(f"[dim]more: --cursor {page.next}[/]")


@app.command()
def show(id: TaskId, as_json: Json = False) -> None:
    """Show one task: arguments, result, attempts, and why it waits."""

    async def look(db: Database) -> Row | None:
        return await db.insights.tasks.detail(await task_id(db, id))

    task = ask(look)
    if task is None:
        raise NotFound(f"there is no task {id}", hint="`shiftboss tasks list` lists tasks")
    say_json(task) if as_json else _show(task)


@app.command()
def steps(id: TaskId, as_json: Json = False) -> None:
    """Show the steps, sleeps, events and child tasks of a task, and where it failed."""

    async def look(db: Database) -> tuple[Sequence[Row], Row | None]:
        task = await task_id(db, id)
        return await db.steps.of(task), await db.tasks.get(task)

    found, task = ask(look)
    show_rows(found, STEPS, as_json=as_json, empty="no steps")
    if task is not None and task["status"] == "Failed":
        where = _failed_step(task["error_message"]) or (
            "after the last step" if found else "before its first step ended"
        )
        typer.echo(f"failed {where}: {first_line(task['error_message'])}", err=True)


def _failed_step(error: str | None) -> str | None:
    """Return the step that raised the error: the last line of its traceback names it."""
    last = (error or "").rpartition("\n")[2]
    return last.removesuffix("#1") if last.startswith(IN_STEP) else None


@app.command()
def stream(
    id: TaskId,
    after: Annotated[int, typer.Option("--after", min=0, help="only parts after this number")] = 0,
    timeout: Timeout = None,
) -> None:
    """Print what a task emits until it ends, one JSON object per line."""
    from shiftboss.db.stream import follow

    async def read(db: Database) -> None:
        task = await task_id(db, id)
        async with waiting(db, lambda: task, timeout):
            async for part in follow(db.steps, task, after):
                shown = {"number": part.number, "attempt": part.attempt, "part": part.part}
                if part.discard is not None:
                    shown["discard"] = sorted(part.discard)
                say_json(shown, line=True)

    with suppress(KeyboardInterrupt):
        ask(read)


@app.command()
def retry(
    ids: Annotated[list[str] | None, typer.Argument(help="task ids")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="retry all failed tasks")] = False,
    task_type: TypeOption = None,
    queue: QueueOption = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="STEP", help="run this step (name or name#2) and later ones again"),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="run all steps again")] = False,
    as_json: Json = False,
) -> None:
    """Queue failed and cancelled tasks again, with all their attempts. Stored steps keep their results.

    Example: shiftboss tasks retry --failed --queue mail
    """
    _one_way(ids, failed, "shiftboss tasks retry ID, or --failed")
    if start is not None and restart:
        raise UsageError("--from and --restart exclude each other", hint="--restart runs all steps again")

    async def do(db: Database, operations: Operations) -> list[UUID]:
        found = await _these(db, ids, chosen("failed", task_type, queue))
        return await operations.retry_tasks(me(), found, start, restart=restart)

    again = act(do)
    say_json({"retried": again}) if as_json else typer.echo(f"{count(len(again), 'task')} will run again")
    if ids and not again:
        raise UsageError("nothing to retry", hint="only failed and cancelled tasks can be retried")


@app.command("run-now")
def run_now(
    ids: Annotated[list[str], typer.Argument(help="task ids")],
    as_json: Json = False,
) -> None:
    """Make tasks due that wait for a time: scheduled, deferred or backing off.

    Example: shiftboss tasks run-now 0199d3c2-5b1e
    """

    async def do(db: Database, operations: Operations) -> list[UUID]:
        return await operations.run_tasks_now(me(), [await task_id(db, one) for one in ids])

    due = act(do)
    say_json({"due": due}) if as_json else typer.echo(f"{count(len(due), 'task')} due now")


@app.command()
def cancel(
    ids: Annotated[list[str] | None, typer.Argument(help="task ids")] = None,
    queued: Annotated[bool, typer.Option("--queued", help="cancel all queued tasks")] = False,
    task_type: TypeOption = None,
    queue: QueueOption = None,
    reason: Annotated[str | None, typer.Option("--reason", help="stored with the task")] = None,
    as_json: Json = False,
) -> None:
    """Cancel queued tasks immediately, and ask running tasks to stop."""
    _one_way(ids, queued, "shiftboss tasks cancel ID, or --queued")

    async def do(db: Database, operations: Operations) -> list[Any]:
        found = await _these(db, ids, chosen("queued", task_type, queue))
        return list(await operations.cancel_tasks(me(), found, reason))

    done = act(do)
    if ids and not done:
        raise NotFound("there is no such task", hint="`shiftboss tasks list` lists tasks")
    if as_json:
        say_json(done)
        return
    for one in done:
        typer.echo(f"{one.id}\t{'asked to stop' if one.cancelling else one.status}")


@app.command()
def tail(
    status: StatusOption = None,
    task_type: TypeOption = None,
    queue: QueueOption = None,
    every: Annotated[float, typer.Option("--every", min=0.05, help="seconds between updates")] = 0.5,
    as_json: Json = False,
) -> None:
    """Print tasks as they are enqueued, start and end, until Ctrl+C."""

    async def follow(db: Database) -> None:
        async for row in changes(db, chosen(status, task_type, queue), every):
            say_json(row, line=True) if as_json else typer.echo(line(row))

    with suppress(KeyboardInterrupt):
        ask(follow)


async def changes(db: Database, wanted: TaskFilter, every: float) -> AsyncIterator[Row]:
    """Yield a row for each new status of a task, from now on."""
    from dataclasses import replace

    since, seen = datetime.now(UTC), set[tuple[Any, str]]()
    while True:
        page = await db.insights.tasks.page(replace(wanted, since=since), limit=1000)
        for row in reversed(page.items):
            if (row["id"], row["status"]) not in seen:
                seen.add((row["id"], row["status"]))
                yield row
        await asyncio.sleep(every)


def chosen(
    status: str | None,
    task_type: str | None,
    queue: str | None,
    *,
    since: str | None = None,
    worker_id: str | None = None,
    text: str | None = None,
) -> TaskFilter:
    """Build a filter from the command's options."""
    from shiftboss.db.insights import TaskFilter

    if status is not None and status.lower() not in WORDS:
        raise UsageError(f"there is no status {status!r}", hint="one of: " + ", ".join(WORDS))
    after = datetime.now(UTC) - parse_span(since) if since else None
    word = WORDS[status.lower()] if status else None
    return TaskFilter(
        status=word, task_type=task_type, queue=queue, since=after, worker_id=worker_id, text=text
    )


def line(row: Row) -> str:
    words = [text(row["at"]), str(row["id"]), row["status"], row["task_type"], _what(row)]
    return "\t".join(filter(None, words))


def _what(row: Row) -> str:
    return first_line(row["error_message"] or row["progress_message"] or row["wait_reason"])


def first_line(words: str | None) -> str:
    return str(shown((words or "").partition("\n")[0]))[:120]


def _one_way(ids: list[str] | None, everything: bool, hint: str) -> None:
    if bool(ids) == everything:
        raise UsageError("choose the tasks: either ids or the option for all of them", hint=hint)


async def _these(db: Database, ids: list[str] | None, wanted: TaskFilter) -> list[UUID]:
    return [await task_id(db, id) for id in ids] if ids else await db.insights.tasks.ids(wanted)


def _show(task: Row) -> None:
    out = console()
    show_facts(_facts(task), 10)
    for reason in task["why"]:
        show_facts({"why": f"{reason['reason']}: {reason['detail']}"}, 10)
        out.print(f"{'':<10} → {reason['advice']}", markup=False, soft_wrap=True)
    if task["attempts_made"]:
        show_rows(task["attempts_made"], ATTEMPTS)
    if task["error_message"]:
        out.print(shown(task["error_message"]), markup=False, soft_wrap=True)


def _facts(task: Row) -> dict[str, Any]:
    doing = shown(task["progress_message"]) or ""
    started, ended = task["generation_started_at"], task["generation_processed_at"]
    return {
        "id": task["id"],
        "task": task["task_type"],
        "status": task["status"],
        "queue": task["queue"],
        "priority": task["priority"],
        "worker": task["worker_id"],
        "tenant": task["tenant"],
        "attempts": f"{task['attempts']} of {task['max_attempts']} failed" if task["attempts"] else "",
        "created": task["created_at"],
        "due": task["run_at"],
        "started": started,
        "ended": ended,
        "took": _took(started, ended),
        "progress": f"{task['progress']} % {doing}" if task["progress"] is not None else "",
        "waits for": task["depends_on"],
        "params": _json(task["params"]),
        "result": _json(task["result_data"]),
    }


def _json(value: Any) -> str:
    import orjson

    return "" if value is None else orjson.dumps(shown(value), default=str).decode()


def _took(start: datetime | None, end: datetime | None) -> str:
    return span(max((end - start).total_seconds(), 0)) if start and end else ""
