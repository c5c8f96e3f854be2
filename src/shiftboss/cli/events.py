"""`shiftboss events`: the fleet's event log, and events for waiting tasks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import Json, JsonLines, count, read_json, say_json, task_id

if TYPE_CHECKING:
    from shiftboss.db import Database, Row
    from shiftboss.operations import Operations

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="keep printing new events")] = False,
    as_json: JsonLines = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="number of recent events to show")] = 50,
    component: Annotated[str | None, typer.Option("--component", help="only events of this slot")] = None,
    worker: Annotated[str | None, typer.Option("--worker", help="only events of this worker")] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="only events of this kind, such as slot.crashed")
    ] = None,
) -> None:
    """Show what happened to each worker, when and why, oldest first. Wake waiting tasks with `send`."""
    if context.invoked_subcommand is not None:
        return
    chosen = {"component": component, "worker_id": worker, "kind": kind}
    with suppress(KeyboardInterrupt):
        asyncio.run(_run(chosen, limit, follow, as_json))


@app.command()
def send(
    key: Annotated[str, typer.Argument(help="the key that tasks wait for")],
    payload: Annotated[
        str | None, typer.Argument(help="what the tasks receive, as JSON", metavar="JSON")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="send the event to this task only")] = None,
    as_json: Json = False,
) -> None:
    """Send an event to all tasks that wait for its key now or start to wait within a day.

    Example: shiftboss events send approval '{"ok": true}' --task 0190...
    """
    from shiftboss.cli.operator import act, me

    value = None if payload is None else read_json(payload, "the payload", "'{\"ok\": true}'")

    async def do(db: Database, operations: Operations) -> int:
        to = await task_id(db, task) if task else None
        return await operations.send_event(me(), key, value, to)

    woken = act(do)
    say_json({"woken": woken}) if as_json else typer.echo(f"{count(woken, 'task')} woken")


async def _run(chosen: dict[str, Any], limit: int, follow: bool, as_json: bool) -> None:
    from shiftboss.db import Database
    from shiftboss.db.listen import listen
    from shiftboss.model.settings import Settings

    async with await Database.open() as db:
        newest = await db.events.latest(1)
        last = newest[0]["id"] if newest else 0
        for row in reversed(await db.events.latest(limit, **chosen)):
            _show(row, as_json)
        if not follow:
            return
        direct = Settings.load().database.direct_url
        async for _ in listen(direct or db.url, ["shiftboss_events"]):
            while rows := await db.events.after(last):
                last = rows[-1]["id"]
                for row in rows:
                    if all(want in (None, row[key]) for key, want in chosen.items()):
                        _show(row, as_json)


def _show(row: Row, as_json: bool) -> None:
    if as_json:
        say_json(row, line=True)
        return
    who = row["component"] or row["worker_id"] or ""
    details = " ".join(f"{key}={value}" for key, value in row["details"].items() if value is not None)
    task = f"task={row['task_id']}" if row["task_id"] else ""
    words = [f"{row['at']:%Y-%m-%d %H:%M:%S}", row["kind"], who, task, details]
    typer.echo("  ".join(word for word in words if word))
