"""`shiftboss queues`: list queues; pause, resume and limit a queue or a task type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Columns, Json, ask, parse_span, say_change, say_json, show_rows, span
from shiftboss.model.errors import UsageError
from shiftboss.model.sources import similar

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.db.insights.rows import QueueRow, TaskTypeRow
    from shiftboss.operations import Operations

app = typer.Typer(help="List, pause, resume and limit queues.", add_completion=False, no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="the queue, or with --type the task type")]
ByType = Annotated[bool, typer.Option("--type", help="NAME is a task type, not a queue")]

COLUMNS: Columns = {
    "queue": "name",
    "queued": "queued",
    "ready": "ready",
    "running": "running",
    "oldest": lambda row: span(row["oldest_seconds"]) if row["queued"] else "",
    "workers": "workers",
    "state": lambda row: f"paused: {row['pause_reason'] or 'no reason given'}" if row["paused"] else "",
    "limit": "max_running",
    "rate": lambda row: f"{row['rate']} per {span(row['rate_seconds'])}" if row["rate"] else "",
}
RATE = ("rate", "rate_seconds", "rate_per")
FIGURES = ("max_running", "max_per_key", *RATE, "limits_set_by", "limits_in_code")


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List every queue that has tasks or workers, is paused or has limits."""
    rows = ask(lambda db: db.insights.fleet.queues(fresh=True))
    show_rows(rows, COLUMNS, as_json=as_json, empty="no queues yet")


@app.command()
def pause(
    name: Name,
    by_type: ByType = False,
    reason: Annotated[str | None, typer.Option("--reason", help="shown by `shiftboss why`")] = None,
    as_json: Json = False,
) -> None:
    """Pause a queue or task type: waiting tasks stay queued, running tasks continue."""

    async def do(db: Database, operations: Operations) -> bool:
        await _require(db, name, by_type)
        return await operations.pause_queue(me(), name, reason, _kind(by_type))

    changed = act(do)
    say_change(name, "paused" if changed else "was already paused", changed, as_json)


@app.command()
def resume(name: Name, by_type: ByType = False, as_json: Json = False) -> None:
    """Resume a paused queue or task type."""
    changed = act(lambda _, operations: operations.resume_queue(me(), name, _kind(by_type)))
    say_change(name, "resumed" if changed else "was not paused", changed, as_json)


@app.command()
def limit(
    name: Name,
    by_type: ByType = False,
    running: Annotated[
        int | None, typer.Option("--running", min=0, help="maximum running at a time, fleet-wide")
    ] = None,
    per_key: Annotated[
        int | None,
        typer.Option("--per-key", min=1, help="maximum running per concurrency key (needs --type)"),
    ] = None,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="maximum started per period")] = None,
    per: Annotated[str, typer.Option("--per", help="the period of --rate, such as 1m")] = "1m",
    each: Annotated[
        Literal["key", "tenant"] | None,
        typer.Option("--each", help="apply --rate separately to each key or tenant"),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="remove all limits")] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="remove limits set by hand; limits in code apply again")
    ] = False,
    as_json: Json = False,
) -> None:
    """Limit a queue or a task type across the whole fleet. Without options, show its limits.

    The given options replace all existing limits of NAME.

    Example: shiftboss queues limit mail --rate 100 --per 1m
    """
    if per_key is not None and not by_type:
        hint = f"shiftboss queues limit --type {name} --per-key {per_key}"
        raise UsageError("--per-key applies to task types only", hint=hint)
    if each is not None and rate is None:
        raise UsageError("--each needs --rate", hint="for example: --rate 100 --each tenant")
    options = {"--running": running, "--per-key": per_key, "--rate": rate}
    options |= {"--none": none or None, "--reset": reset or None}
    given = [option for option, value in options.items() if value is not None]
    if (none or reset) and len(given) > 1:
        raise UsageError(f"{given[-1]} cannot be combined with {given[0]}", hint="use one of them")
    if reset:
        changed = act(lambda _, operations: operations.reset_limit(me(), name, _kind(by_type)))
        state = "reset: limits in code apply" if changed else "had no limits set by hand"
        say_change(name, state, changed, as_json)
        return
    if not given:
        _show_limits(name, by_type, as_json)
        return

    async def do(db: Database, operations: Operations) -> None:
        await _require(db, name, by_type)
        period = parse_span(per) if rate is not None else None
        limits: dict[str, Any] = {"max_per_key": per_key, "rate_per": each or "all"}
        await operations.limit_queue(me(), name, running, rate, period, kind=_kind(by_type), **limits)

    act(do)
    say_change(name, "no longer limited" if none else "limited", True, as_json)


@app.command()
def age(
    every: Annotated[
        str | None, typer.Argument(help="waiting time that raises the priority by one, such as 10m")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="stop ageing")] = False,
    as_json: Json = False,
) -> None:
    """Raise the priority of waiting tasks over time, so that none starves. Without options, show the setting.

    Example: shiftboss queues age 10m
    """
    if every is not None and off:
        raise UsageError("--off cannot be combined with a duration", hint="use one of them")
    if every is not None or off:
        wanted = None if every is None else parse_span(every)
        act(lambda _, operations: operations.set_ageing(me(), wanted))
    now = ask(lambda db: db.fairness.ageing())
    if as_json:
        say_json({"every_seconds": None if now is None else now.total_seconds()})
    elif now is None:
        typer.echo("priorities do not age")
    else:
        typer.echo(f"a waiting task gains one point of priority every {span(now.total_seconds())}")


def _show_limits(name: str, by_type: bool, as_json: bool) -> None:
    async def look(db: Database) -> TaskTypeRow | QueueRow | None:
        await _require(db, name, by_type)
        rows = await db.insights.fleet.types() if by_type else await db.insights.fleet.queues(fresh=True)
        return next((row for row in rows if row["name"] == name), None)

    found = ask(look)
    row: dict[str, Any] = {**found} if found else {}
    limits = {figure: row.get(figure) for figure in FIGURES}
    if as_json:
        say_json({"name": name, **limits})
        return
    parts = [f"{limits['max_running']} running at a time"] if limits["max_running"] is not None else []
    parts += [f"{limits['max_per_key']} per key"] if limits["max_per_key"] is not None else []
    if limits["rate"] is not None:
        each = f" for each {limits['rate_per']}" if limits["rate_per"] in ("key", "tenant") else ""
        parts.append(f"{limits['rate']} per {span(limits['rate_seconds'])}{each}")
    typer.echo(f"{name}: {', '.join(parts) or 'no limits'}{_source(limits)}")
    option = "--type " if by_type else ""
    typer.echo(f"to change: shiftboss queues limit {option}{name} --running 10, or --none", err=True)


def _source(limits: dict[str, Any]) -> str:
    """Say where the limits come from, if they could come from more than one place."""
    if limits["limits_set_by"] == "code":
        return " (in code)"
    return " (set by hand, overriding limits in code)" if limits["limits_in_code"] else ""


def _kind(by_type: bool) -> Literal["queue", "task_type"]:
    return "task_type" if by_type else "queue"


async def _require(db: Database, name: str, by_type: bool) -> None:
    """Reject an unknown name that resembles a known one: it is probably a typo."""
    rows = await db.insights.fleet.queues(fresh=True)
    known = await db.insights.tasks.types() if by_type else [row["name"] for row in rows]
    near = similar(name, known)
    if name not in known and near:
        what = "task type" if by_type else "queue"
        raise UsageError(f"there is no {what} {name!r}", hint=f"did you mean {near}?")
