"""`shiftboss errors`: failures grouped by cause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import (
    Columns,
    Json,
    Limit,
    Row,
    ask,
    count,
    parse_span,
    say_json,
    show_facts,
    show_rows,
)

if TYPE_CHECKING:
    from shiftboss.db import Database

app = typer.Typer(
    help="Failures grouped by cause: list, show, retry.", add_completion=False, no_args_is_help=True
)
Group = Annotated[str, typer.Argument(help="the group's id, or its first characters", metavar="GROUP")]

COLUMNS: Columns = {
    "group": "id",
    "count": "count",
    "last seen": "last_seen",
    "first seen": "first_seen",
    "error": "error_type",
    "place": "place",
    "tasks": "task_types",
}


@app.command("list")
def list_(
    since: Annotated[
        str | None, typer.Option("--since", help="only groups seen within this time, such as 2h")
    ] = None,
    limit: Limit = 30,
    as_json: Json = False,
) -> None:
    """List error groups, most recently seen first.

    Example: shiftboss errors list --since 1h
    """
    after = None if since is None else datetime.now(UTC) - parse_span(since)
    rows = ask(lambda db: db.insights.errors.groups(after, limit))
    show_rows(rows, COLUMNS, as_json=as_json, empty="no errors")


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
    show_facts({name.replace("_", " "): value for name, value in found.items()}, 13)


@app.command()
def retry(group: Group, as_json: Json = False) -> None:
    """Retry the failed tasks of a group.

    Example: shiftboss errors retry 3f2a91
    """
    many = len(act(lambda _, operations: operations.retry_errors(me(), group)))
    say_json({"retried": many}) if as_json else typer.echo(f"{count(many, 'task')} will run again")
