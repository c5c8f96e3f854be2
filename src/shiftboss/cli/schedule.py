"""`shiftboss schedule`: tasks that are enqueued again and again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database

app = typer.Typer(
    help="Schedules: fired once per tick by the leader of the coordinators.", add_completion=False
)
Name = Annotated[str, typer.Argument(help="the schedule's name")]


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False) -> None:
    """Every schedule, its next tick and its last."""
    rows = _with_database(lambda db: db.schedules.all())
    if as_json:
        typer.echo(json.dumps(rows, default=str, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "cron", "zone", "task", "next", "last", "missed")
    for row in rows:
        following = "paused" if row["paused"] else f"{row['next_tick']:%Y-%m-%d %H:%M:%S %Z}"
        last = f"{row['last_tick']:%Y-%m-%d %H:%M:%S %Z}" if row["last_tick"] else ""
        task = row["task"]["task_type"]
        table.add_row(row["name"], row["cron"], row["timezone"], task, following, last, row["missed"])
    Console().print(table if rows else "there are no schedules; `shiftboss schedule add --help`")


@app.command()
def add(
    name: Name,
    cron: Annotated[str, typer.Argument(help="when, as in '*/5 * * * *'")],
    task_type: Annotated[str, typer.Argument(help="which handler to run")],
    params: Annotated[str, typer.Option("--params", help="its arguments, as a JSON object")] = "{}",
    queue: Annotated[str | None, typer.Option("--queue", "-q")] = None,
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=100)] = None,
    timezone: Annotated[str, typer.Option("--timezone", "-z", help="whose clock it goes by")] = "UTC",
    missed: Annotated[str, typer.Option("--missed", help="late ticks: latest, all or skip")] = "latest",
) -> None:
    """Add a schedule, or change the one of that name.

    Example: shiftboss schedule add nightly '0 3 * * *' cleanup --timezone Europe/Madrid
    """
    from shiftboss.coordinator.cron import Cron, register

    task: dict[str, Any] = {"task_type": task_type, "params": _object(params)}
    task |= {k: v for k, v in (("queue", queue), ("priority", priority)) if v is not None}
    wanted = Cron(name=name, cron=cron, task=task, timezone=timezone, missed=missed)  # type: ignore[arg-type]
    wanted.check()
    _with_database(lambda db: register(db, [wanted]))
    row = _with_database(lambda db: db.schedules.get(name))
    typer.echo(f"{name}: next at {row['next_tick']:%Y-%m-%d %H:%M:%S %Z}" if row else name)


@app.command()
def remove(name: Name) -> None:
    """Take a schedule away; tasks that it made stay."""
    from shiftboss.coordinator.cron import unknown

    if not _with_database(lambda db: db.schedules.remove(name)):
        raise unknown(name)
    typer.echo(f"{name}: removed")


@app.command()
def pause(name: Name) -> None:
    """Fire it no more, until it is resumed."""
    _set_paused(name, True)


@app.command()
def resume(name: Name) -> None:
    """Go on from the next tick; those that passed are not made up for."""
    _set_paused(name, False)


def _set_paused(name: str, paused: bool) -> None:
    from shiftboss.coordinator.cron import set_paused

    _with_database(lambda db: set_paused(db, name, paused))
    typer.echo(f"{name}: {'paused' if paused else 'resumed'}")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--params is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("--params must be a JSON object", hint="for example: --params '{\"days\": 7}'")
    return value


def _with_database(work: Callable[[Database], Awaitable[Any]]) -> Any:
    from shiftboss.db import Database

    async def run() -> Any:
        async with await Database.open() as db:
            return await work(db)

    return asyncio.run(run())
