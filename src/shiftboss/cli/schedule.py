"""`shiftboss schedule`: tasks that are enqueued on a cron schedule."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Columns, Json, TaskPriority, TaskQueue, ask, note, read_object, show_rows

app = typer.Typer(help="Cron schedules. The leader enqueues each task once per tick.", add_completion=False)
Name = Annotated[str, typer.Argument(help="the schedule's name")]
Missed = Literal["latest", "all", "skip"]


COLUMNS: Columns = {
    "name": "name",
    "cron": "cron",
    "zone": "timezone",
    "task": lambda row: row["task"]["task_type"],
    "next": lambda row: "paused" if row["paused"] else row["next_tick"],
    "last": "last_tick",
    "missed": "missed",
}


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the schedules with their next and last ticks."""
    empty = "no schedules: see `shiftboss schedule add --help`"
    show_rows(ask(lambda db: db.schedules.all()), COLUMNS, as_json=as_json, empty=empty)


@app.command()
def add(
    name: Name,
    cron: Annotated[str, typer.Argument(help="the cron expression, such as '*/5 * * * *'")],
    task_type: Annotated[str, typer.Argument(help="the task type to enqueue")],
    params: Annotated[str, typer.Option("--params", help="the task's arguments, as a JSON object")] = "{}",
    queue: TaskQueue = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="the tenant that the tasks belong to")
    ] = None,
    requires: Annotated[
        str | None,
        typer.Option("--requires", help="capabilities a worker must have, such as '{\"gpu\": true}'"),
    ] = None,
    priority: TaskPriority = None,
    timezone: Annotated[
        str, typer.Option("--timezone", "-z", help="the time zone of the cron expression")
    ] = "UTC",
    missed: Annotated[Missed, typer.Option("--missed", help="which missed ticks to fire")] = "latest",
) -> None:
    """Add a schedule, or replace the one with the same name.

    Example: shiftboss schedule add nightly '0 3 * * *' cleanup --timezone Europe/Madrid
    """
    from shiftboss.leader.schedules import Cron, task

    needs = None if requires is None else read_object(requires, "--requires", "'{\"gpu\": true}'")
    given = read_object(params, "--params", "'{\"days\": 7}'")
    order = task(task_type, given, queue=queue, priority=priority, tenant=tenant, requires=needs)
    wanted = Cron(name=name, cron=cron, task=order, timezone=timezone, missed=missed)
    wanted.check()
    row = act(lambda _, operations: operations.put_schedule(me(), wanted))
    typer.echo(f"{name}: next at {row['next_tick']:%Y-%m-%d %H:%M:%S %Z}")
    note(row["warning"])


@app.command()
def remove(name: Name) -> None:
    """Remove a schedule. Tasks that it has already enqueued stay."""
    act(lambda _, operations: operations.remove_schedule(me(), name))
    typer.echo(f"{name}: removed")


@app.command()
def pause(name: Name) -> None:
    """Pause a schedule until it is resumed."""
    act(lambda _, operations: operations.pause_schedule(me(), name))
    typer.echo(f"{name}: paused")


@app.command()
def resume(name: Name) -> None:
    """Resume a schedule from its next tick. Ticks missed while paused are not fired."""
    act(lambda _, operations: operations.resume_schedule(me(), name))
    typer.echo(f"{name}: resumed")
