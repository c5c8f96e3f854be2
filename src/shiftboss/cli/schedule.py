"""`shiftboss schedule`: tasks that are enqueued again and again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Json, ask, say_json, show_rows
from shiftboss.model.errors import UsageError

app = typer.Typer(
    help="Schedules: fired once per tick by the leader of the coordinators.", add_completion=False
)
Name = Annotated[str, typer.Argument(help="the schedule's name")]
Missed = Literal["latest", "all", "skip"]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """Every schedule, its next tick and its last."""
    rows = ask(lambda db: db.schedules.all())
    if as_json:
        say_json(rows)
        return
    show_rows(
        rows,
        {
            "name": lambda row: row["name"],
            "cron": lambda row: row["cron"],
            "zone": lambda row: row["timezone"],
            "task": lambda row: row["task"]["task_type"],
            "next": lambda row: "paused" if row["paused"] else row["next_tick"],
            "last": lambda row: row["last_tick"],
            "missed": lambda row: row["missed"],
        },
        empty="there are no schedules; `shiftboss schedule add --help`",
    )


@app.command()
def add(
    name: Name,
    cron: Annotated[str, typer.Argument(help="when, as in '*/5 * * * *'")],
    task_type: Annotated[str, typer.Argument(help="which handler to run")],
    params: Annotated[str, typer.Option("--params", help="its arguments, as a JSON object")] = "{}",
    queue: Annotated[str | None, typer.Option("--queue", "-q")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="on whose account it is")] = None,
    requires: Annotated[
        str | None, typer.Option("--requires", help="what its worker must have, as in '{\"gpu\": true}'")
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=100)] = None,
    timezone: Annotated[str, typer.Option("--timezone", "-z", help="whose clock it goes by")] = "UTC",
    missed: Annotated[Missed, typer.Option("--missed", help="what becomes of late ticks")] = "latest",
) -> None:
    """Add a schedule, or change the one of that name.

    Example: shiftboss schedule add nightly '0 3 * * *' cleanup --timezone Europe/Madrid
    """
    from shiftboss.leader.schedules import Cron, task

    needs = None if requires is None else _object(requires, "--requires")
    order = task(task_type, _object(params), queue=queue, priority=priority, tenant=tenant, requires=needs)
    wanted = Cron(name=name, cron=cron, task=order, timezone=timezone, missed=missed)
    wanted.check()
    row = act(lambda _, operations: operations.put_schedule(me(), wanted))
    typer.echo(f"{name}: next at {row['next_tick']:%Y-%m-%d %H:%M:%S %Z}")


@app.command()
def remove(name: Name) -> None:
    """Take a schedule away; tasks that it made stay."""
    act(lambda _, operations: operations.remove_schedule(me(), name))
    typer.echo(f"{name}: removed")


@app.command()
def pause(name: Name) -> None:
    """Fire it no more, until it is resumed."""
    act(lambda _, operations: operations.pause_schedule(me(), name))
    typer.echo(f"{name}: paused")


@app.command()
def resume(name: Name) -> None:
    """Go on from the next tick; those that passed are not made up for."""
    act(lambda _, operations: operations.resume_schedule(me(), name))
    typer.echo(f"{name}: resumed")


def _object(text: str, option: str = "--params") -> dict[str, Any]:
    import orjson

    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise UsageError(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object", hint="for example: --params '{\"days\": 7}'")
    return value
