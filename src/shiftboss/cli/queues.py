"""`shiftboss queues`: what waits where; pause, resume and limit a queue or a task type."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Columns, Json, ask, parse_span, say_json, show_rows, span
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database, Row
    from shiftboss.operations import Operations

app = typer.Typer(help="Queues: list, pause, resume, limit, age.", add_completion=False, no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="the queue; with --type the task type")]
ByType = Annotated[bool, typer.Option("--type", help="NAME is a task type, not a queue")]

COLUMNS: Columns = {
    "queue": lambda row: row["name"],
    "queued": lambda row: row["queued"],
    "ready": lambda row: row["ready"],
    "running": lambda row: row["running"],
    "oldest": lambda row: span(row["oldest_seconds"]) if row["queued"] else "",
    "workers": lambda row: row["workers"],
    "state": lambda row: f"paused: {row['pause_reason'] or 'no reason given'}" if row["paused"] else "",
    "limit": lambda row: row["max_running"],
    "rate": lambda row: f"{row['rate']} per {span(row['rate_seconds'])}" if row["rate"] else "",
}


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Every queue that has tasks, workers, a pause or a limit."""
    rows = ask(lambda db: db.insights.fleet.queues(fresh=True))
    say_json(rows) if as_json else show_rows(rows, COLUMNS, empty="no queues yet")


@app.command()
def pause(
    name: Name,
    by_type: ByType = False,
    reason: Annotated[str | None, typer.Option("--reason", help="shown by `shiftboss why`")] = None,
    as_json: Json = False,
) -> None:
    """Hold back what waits; what runs goes on."""

    async def do(db: Database, operations: Operations) -> bool:
        await _require(db, name, by_type)
        return await operations.pause_queue(me(), name, reason, _kind(by_type))

    _tell(name, "paused", "was paused already", act(do), as_json)


@app.command()
def resume(name: Name, by_type: ByType = False, as_json: Json = False) -> None:
    """Let it go on."""
    changed = act(lambda _, operations: operations.resume_queue(me(), name, _kind(by_type)))
    _tell(name, "resumed", "was not paused", changed, as_json)


@app.command()
def limit(
    name: Name,
    by_type: ByType = False,
    running: Annotated[
        int | None, typer.Option("--running", min=0, help="most at a time, fleet-wide")
    ] = None,
    per_key: Annotated[
        int | None, typer.Option("--per-key", min=1, help="most at a time per concurrency key (--type)")
    ] = None,
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="most started per period")] = None,
    per: Annotated[str, typer.Option("--per", help="the period of --rate, as in 1m")] = "1m",
    each: Annotated[
        str | None, typer.Option("--each", help="key or tenant: each has the whole --rate to itself")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="remove all limits")] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="forget what was set by hand; limits in code hold again")
    ] = False,
    as_json: Json = False,
) -> None:
    """Limit a queue or a task type over the whole fleet; with no option, show its limits.

    The options given replace all limits of NAME.

    Example: shiftboss queues limit mail --rate 100 --per 1m
    """
    if per_key is not None and not by_type:
        raise UsageError("--per-key is a limit of a task type", hint=f"shiftboss queues limit --type {name}")
    figures = {"--running": running, "--per-key": per_key, "--rate": rate}
    given = [option for option, value in figures.items() if value is not None]
    given += [option for option, on in (("--none", none), ("--reset", reset)) if on]
    if each is not None and (each not in ("key", "tenant") or rate is None):
        raise UsageError(f"--each {each} is not possible", hint="--rate 100 --each key, or --each tenant")
    if (none or reset) and len(given) > 1:
        raise UsageError(f"{given[-1]} contradicts {given[0]}", hint="use one of them")
    if reset:
        changed = act(lambda _, operations: operations.reset_limit(me(), name, _kind(by_type)))
        _tell(
            name,
            "reset: limits in code hold, if there are any",
            "had no limits set by hand",
            changed,
            as_json,
        )
        return
    if not given:
        _show_limits(name, by_type, as_json)
        return

    async def do(db: Database, operations: Operations) -> None:
        await _require(db, name, by_type)
        period = parse_span(per) if rate is not None else None
        scope = cast(Literal["all", "key", "tenant"], each or "all")
        await operations.limit_queue(
            me(), name, running, rate, period, kind=_kind(by_type), max_per_key=per_key, rate_per=scope
        )

    act(do)
    _tell(name, "no longer limited" if none else "limited", "", True, as_json)


@app.command()
def age(
    every: Annotated[
        str | None, typer.Argument(help="how long a task waits for one more point, as in 10m")
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="priorities do not age any more")] = False,
    as_json: Json = False,
) -> None:
    """Let priorities age, so that no task starves behind more urgent ones; with no option, show how.

    Example: shiftboss queues age 10m
    """
    if every is not None and off:
        raise UsageError("--off contradicts a time", hint="use one of them")
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
    async def look(db: Database) -> Row | None:
        await _require(db, name, by_type)
        rows = await db.insights.fleet.types() if by_type else await db.insights.fleet.queues(fresh=True)
        return next((row for row in rows if row["name"] == name), None)

    row = ask(look) or {}
    figures = (
        "max_running",
        "max_per_key",
        "rate",
        "rate_seconds",
        "rate_per",
        "limits_set_by",
        "limits_in_code",
    )
    limits = {key: row.get(key) for key in figures}
    if as_json:
        say_json({"name": name, **limits})
        return
    told = [f"{limits['max_running']} running at a time"] if limits["max_running"] is not None else []
    told += [f"{limits['max_per_key']} per key"] if limits["max_per_key"] is not None else []
    each = f" for each {limits['rate_per']}" if limits["rate_per"] in ("key", "tenant") else ""
    told += (
        [f"{limits['rate']} per {span(limits['rate_seconds'])}{each}"] if limits["rate"] is not None else []
    )
    typer.echo(f"{name}: {', '.join(told) or 'no limits'}{_source(limits)}")
    option = "--type " if by_type else ""
    typer.echo(f"change it: shiftboss queues limit {option}{name} --running 10, or --none", err=True)


def _source(limits: Row) -> str:
    """Whose limits these are, where that can be more than one."""
    if limits["limits_set_by"] == "code":
        return " (in code)"
    return " (set by hand, instead of those in code)" if limits["limits_in_code"] else ""


def _kind(by_type: bool) -> Literal["queue", "task_type"]:
    return "task_type" if by_type else "queue"


async def _require(db: Database, name: str, by_type: bool) -> None:
    """A name that nobody has heard of is a slip more often than a plan: near ones are offered."""
    rows = await db.insights.fleet.queues(fresh=True)
    known = await db.insights.tasks.types() if by_type else [row["name"] for row in rows]
    near = get_close_matches(name, known, n=1)
    if name not in known and near:
        what = "task type" if by_type else "queue"
        raise UsageError(f"there is no {what} {name!r}", hint=f"did you mean {near[0]}?")


def _tell(name: str, done: str, not_done: str, changed: bool, as_json: bool) -> None:
    if as_json:
        say_json({"name": name, "changed": changed})
    else:
        typer.echo(f"{name} {done if changed else not_done}")
