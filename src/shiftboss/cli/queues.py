"""`shiftboss queues`: what waits where; pause, resume and limit a queue or a task type."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.output import Columns, Json, ask, parse_span, say_json, show_rows, span
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database

app = typer.Typer(help="Queues: list, pause, resume, limit.", add_completion=False, no_args_is_help=True)

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
    reason: Annotated[str | None, typer.Option("--reason", help="shown to who asks why")] = None,
    as_json: Json = False,
) -> None:
    """Hold back what waits; what runs goes on."""

    async def act(db: Database) -> bool:
        await _require(db, name, by_type)
        return await db.tasks.pause(_kind(by_type), name, reason)

    _tell(name, "paused", "was paused already", ask(act), as_json)


@app.command()
def resume(name: Name, by_type: ByType = False, as_json: Json = False) -> None:
    """Let it go on."""
    changed = ask(lambda db: db.tasks.resume(_kind(by_type), name))
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
    as_json: Json = False,
) -> None:
    """Limit a queue or a task type over the whole fleet; with no figure, take its limits away.

    Example: shiftboss queues limit mail --rate 100 --per 1m
    """
    if per_key is not None and not by_type:
        raise UsageError("--per-key is a limit of a task type", hint=f"shiftboss queues limit --type {name}")

    async def act(db: Database) -> None:
        await _require(db, name, by_type)
        period = parse_span(per) if rate is not None else None
        await db.tasks.set_limit(
            _kind(by_type), name, max_running=running, max_per_key=per_key, rate=rate, rate_period=period
        )

    ask(act)
    has = any(value is not None for value in (running, per_key, rate))
    _tell(name, "limited" if has else "no longer limited", "", True, as_json)


def _kind(by_type: bool) -> str:
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
