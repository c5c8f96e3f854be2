"""`shiftboss status`: show the whole fleet on one screen."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import (
    Columns,
    Every,
    Json,
    Row,
    ask,
    cells,
    console,
    count,
    on_terminal,
    say_json,
    span,
    table,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shiftboss.db import Database

app = typer.Typer(add_completion=False)

RECENT = timedelta(minutes=5)
MOST = 20

WORKERS: Columns = {
    "worker": "worker_id",
    "health": lambda row: worker_state(row),
    "running": lambda row: (row["resource_usage"] or {}).get("running"),
    "today": "processed_today",
    "errors": lambda row: f"{100 * row['error_rate']:.0f} %" if row["processed_today"] else "",
    "beat": lambda row: f"{span(row['heartbeat_age_seconds'])} ago" if row["heartbeat_age_seconds"] else "",
}
QUEUES: Columns = {
    "queue": "name",
    "queued": "queued",
    "running": "running",
    "oldest": lambda row: span(row["oldest_seconds"]) if row["queued"] else "",
    "workers": "workers",
    "state": lambda row: "paused" if row["paused"] else "",
}


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="keep updating the screen")] = False,
    every: Every = 1.0,
    as_json: Json = False,
) -> None:
    """Show tasks, queues, workers, rates and alerts on one screen.

    Exit code: always 0, even if there are alerts. Use `shiftboss doctor` for health checks in scripts.
    """
    if watch:
        with suppress(KeyboardInterrupt):
            ask(lambda db: _watch(db, every, as_json))
        return
    _print(ask(gather), as_json)


async def gather(db: Database) -> dict[str, Any]:
    """Read everything that the screen shows, bypassing caches."""
    insights = db.insights
    points = await insights.series.throughput(RECENT, RECENT)
    return {
        "tasks": await insights.overview.counts(fresh=True),
        "rate": points[-1] if points else None,
        "latency": await insights.series.latency(),
        "queues": await insights.fleet.queues(fresh=True),
        "workers": await insights.fleet.workers(status="active"),
        "alerts": await insights.overview.alerts(),
    }


def summary(data: dict[str, Any]) -> str:
    """Return the main figures as one line."""
    tasks, rate = data["tasks"], data["rate"]
    words = [f"{tasks[f'{name}_tasks']} {name}" for name in ("queued", "running", "completed", "failed")]
    if rate is not None:
        words.append(f"{rate['per_second']:.1f}/s")
    if data["latency"]["p50_ms"] is not None:
        words.append(f"median {span(data['latency']['p50_ms'] / 1000)}")
    return " · ".join([*words, count(tasks["active_workers"], "worker")])


def screen(data: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.markup import escape

    parts: list[RenderableType] = [f"[bold]{summary(data)}[/]"]
    for name, columns in (("queues", QUEUES), ("workers", WORKERS)):
        rows = data[name]
        if rows:
            parts += ["", table(columns, [cells(row, columns) for row in rows[:MOST]])]
        if len(rows) > MOST:
            parts.append(f"[dim]and {len(rows) - MOST} more {name}[/]")
    if not data["workers"]:
        parts += ["", "[yellow]no workers[/]: `shiftboss up module:app` or `shiftboss worker module:app`"]
    parts += [f"[red]![/] {escape(alert['message'])}" for alert in data["alerts"]]
    return Group(*parts)


def worker_state(row: Row) -> str:
    if row["draining"]:
        return "draining"
    return "paused" if row["paused"] else str(row["health_status"])


async def _watch(db: Database, every: float, as_json: bool) -> None:
    if as_json or not on_terminal():
        while True:
            _print(await gather(db), as_json, line=True)
            await asyncio.sleep(every)
    from rich.live import Live

    with Live(screen(await gather(db)), console=console(), screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(every)
            live.update(screen(await gather(db)), refresh=True)


def _print(data: dict[str, Any], as_json: bool, *, line: bool = False) -> None:
    if as_json:
        say_json(data, line=line)
    elif on_terminal():
        console().print(screen(data))
    else:
        _print_plain(data)


def _print_plain(data: dict[str, Any]) -> None:
    typer.echo(f"tasks\t{summary(data)}")
    for name, columns in (("queue", QUEUES), ("worker", WORKERS)):
        for row in data[f"{name}s"]:
            typer.echo("\t".join([name, *cells(row, columns)]))
    for alert in data["alerts"]:
        typer.echo(f"alert\t{alert['severity']}\t{alert['message']}")
