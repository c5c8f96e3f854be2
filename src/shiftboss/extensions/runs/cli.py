"""`shiftboss runs`: list, show, watch and cancel runs of bots."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal
from uuid import UUID

import typer

from shiftboss.cli.operator import me, operate
from shiftboss.cli.output import (
    Columns,
    Ids,
    Json,
    ask,
    on_terminal,
    say_json,
    short_ids,
    show_rows,
    whole_id,
)
from shiftboss.cli.waiting import Timeout, waiting
from shiftboss.db import Database, Row
from shiftboss.extensions.runs.operations import RunOperations
from shiftboss.extensions.runs.store import Runs

app = typer.Typer(help="Runs of bots, executed by the fleet.", add_completion=False)

RUNS = Ids("run", "public.worker_runs", "shiftboss runs list")
Id = Annotated[str, typer.Argument(metavar="ID", help="run id, or its first characters")]
COLUMNS: Columns = {
    "id": "id",
    "bot": "bot",
    "city": "city",
    "category": "category",
    "status": "status",
    "%": "progress",
    "started": "started_at",
    "note": lambda row: (
        row["error_message"] or ", ".join(f"{name} {n}" for name, n in row["counters"].items())
    ),
}


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
    rows = ask(lambda db: db.family(Runs).list_runs(bot=bot, status=status, limit=limit))
    size = short_ids([row["id"] for row in rows]) if on_terminal() else None
    columns = {**COLUMNS, "id": lambda row: str(row["id"])[:size]}
    show_rows(rows, columns, as_json=as_json, empty="no runs")


@app.command()
def show(id: Id, as_json: Json = False) -> None:
    """Show all details of a run."""

    async def look(db: Database) -> Row:
        return await db.family(Runs).find(await run_id(db, id))

    row = ask(look)
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
        chosen = [await run_id(db, id) for id in ids or []]
        chosen = chosen or [row["id"] for row in await db.family(Runs).active()]
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

    async def run(db: Database, operations: RunOperations) -> Row:
        whole = await run_id(db, id)
        await operations.cancel_run(me(), whole)
        return await db.family(Runs).find(whole)

    row = operate(RunOperations, run)
    typer.echo("cancelled" if row["status"] == "failed" else "cancelling: waiting for its worker to stop")


async def run_id(db: Database, word: str) -> UUID:
    """Resolve a whole run id, or a unique prefix of one."""
    return await whole_id(db, RUNS, word)


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
