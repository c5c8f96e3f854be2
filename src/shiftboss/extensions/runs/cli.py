"""`shiftboss runs`: list, show, watch and cancel runs of bots."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from shiftboss.cli.operator import me, operating
from shiftboss.cli.output import Json, ask, say_json
from shiftboss.cli.waiting import Timeout, waiting
from shiftboss.extensions.runs.operations import RunOperations
from shiftboss.extensions.runs.store import Runs, run_id

if TYPE_CHECKING:
    from uuid import UUID

    from shiftboss.db import Database, Row

app = typer.Typer(help="Runs of bots, executed by the fleet.", add_completion=False)

Id = Annotated[str, typer.Argument(metavar="ID", help="the id of a run")]


@app.command("list")
def list_(
    bot: Annotated[str | None, typer.Option(help="only runs of this bot")] = None,
    status: Annotated[
        Literal["pending", "running", "finished", "failed"] | None,
        typer.Option(help="only runs with this status"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="maximum number of runs")] = 20,
    as_json: Json = False,
) -> None:
    """List the latest runs, newest first."""
    from rich.console import Console

    rows = ask(lambda db: db.family(Runs).list_runs(bot=bot, status=status, limit=limit))
    if as_json:
        say_json(rows)
    else:
        Console().print(_table(rows))


@app.command()
def show(id: Id, as_json: Json = False) -> None:
    """Show all details of a run."""
    row = ask(lambda db: db.family(Runs).find(run_id(id)))
    if as_json:
        say_json(row)
        return
    for name, value in row.items():
        if value is not None:
            typer.echo(f"{name:<17} {value}")


@app.command()
def watch(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="default: all active runs")
    ] = None,
    timeout: Timeout = None,
) -> None:
    """Show progress bars of these runs, or of all active ones, until they end."""

    async def run(db: Database) -> int:
        chosen = [run_id(id) for id in ids or []] or [row["id"] for row in await db.family(Runs).active()]
        if not chosen:
            typer.echo("no active runs; start one with `shiftboss runs start discovery`")
            return 0
        for id in chosen:
            await db.family(Runs).find(id)
        return await watch_runs(db, chosen, timeout)

    with suppress(KeyboardInterrupt):
        raise typer.Exit(ask(run))


@app.command()
def cancel(id: Id) -> None:
    """Cancel a run. A pending run ends at once; a running one ends when its worker stops it."""

    async def run() -> Row:
        async with operating(RunOperations) as (db, operations):
            await operations.cancel_run(me(), run_id(id))
            return await db.family(Runs).find(run_id(id))

    row = asyncio.run(run())
    typer.echo("cancelled" if row["status"] == "failed" else "cancelling: waiting for its worker to stop")


async def watch_runs(db: Database, ids: list[UUID], timeout: float | None = None) -> int:
    """Show progress bars until all runs have ended; return 1 if one of them failed."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from shiftboss.db.listen import listen
    from shiftboss.model.settings import Settings

    rows: list[Row] = []
    live: list[Row] = []
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns) as progress:
        lines = {id: progress.add_task(str(id), total=100) for id in ids}
        direct = Settings.load().database.direct_url
        async with waiting(db, lambda: (live and live[0]["task_id"]) or ids[0], timeout):
            async for _ in listen(direct or db.url, ["shiftboss_runs"]):
                rows = await db.family(Runs).named(ids)
                for row in rows:
                    progress.update(lines[row["id"]], completed=row["progress"], description=_describe(row))
                live = [row for row in rows if row["status"] in ("pending", "running")]
                if not live:
                    break
    for row in rows:
        typer.echo(f"{row['id']} {row['status']} {row['error_message'] or row['counters']}")
    return int(any(row["status"] == "failed" for row in rows))


def _describe(row: Row) -> str:
    where = " ".join(filter(None, (row["bot"], row["city"], row["category"])))
    return f"{where} [{row['status']}] {row['message'] or ''}".strip()


def _table(rows: list[Row]) -> Any:
    from rich.table import Table

    table = Table(
        "id", "bot", "city", "category", "status", "%", "started", "note", box=None, header_style="bold"
    )
    for row in rows:
        note = row["error_message"] or ", ".join(f"{name} {n}" for name, n in row["counters"].items())
        table.add_row(
            str(row["id"]),
            row["bot"],
            row["city"],
            row["category"],
            row["status"],
            str(row["progress"]),
            f"{row['started_at']:%Y-%m-%d %H:%M:%S}" if row["started_at"] else "",
            note,
        )
    return table
