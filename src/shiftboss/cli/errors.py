"""`shiftboss errors`: failures grouped by cause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import (
    Columns,
    Json,
    Row,
    ask,
    console,
    count,
    parse_span,
    say_json,
    show_rows,
    text,
)

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.operations import Operations

app = typer.Typer(
    help="Failures grouped by cause: list, show, retry.", add_completion=False, no_args_is_help=True
)
Group = Annotated[str, typer.Argument(help="the group's id, or its first characters", metavar="GROUP")]

COLUMNS: Columns = {
    "group": lambda row: row["id"],
    "count": lambda row: row["count"],
    "last seen": lambda row: row["last_seen"],
    "first seen": lambda row: row["first_seen"],
    "error": lambda row: row["error_type"],
    "place": lambda row: row["place"],
    "tasks": lambda row: row["task_types"],
}


@app.command("list")
def list_(
    since: Annotated[
        str | None, typer.Option("--since", help="only groups seen within this time, such as 2h")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="how many to list")] = 30,
    as_json: Json = False,
) -> None:
    """List error groups, most recently seen first.

    Example: shiftboss errors list --since 1h
    """
    after = None if since is None else datetime.now(UTC) - parse_span(since)
    rows = ask(lambda db: db.insights.errors.groups(after, limit))
    say_json(rows) if as_json else show_rows(rows, COLUMNS, empty="no errors")


@app.command()
def show(group: Group, as_json: Json = False) -> None:
    """Show one group: when it was seen, on which workers and versions, and which tasks it failed."""

    async def look(db: Database) -> Row:
        found = await db.insights.errors.group(group)
        return found | {"failed_tasks": await db.insights.errors.members(found["id"], 20)}

    found = ask(look)
    if as_json:
        say_json(found)
        return
    for name, value in found.items():
        console().print(f"{name.replace('_', ' '):<14}{text(value)}", markup=False, soft_wrap=True)


@app.command()
def retry(group: Group, as_json: Json = False) -> None:
    """Retry the failed tasks of a group.

    Example: shiftboss errors retry 3f2a91
    """

    async def do(db: Database, operations: Operations) -> int:
        return len(await operations.retry_errors(me(), group))

    many = act(do)
    say_json({"retried": many}) if as_json else typer.echo(f"{count(many, 'task')} will run again")
