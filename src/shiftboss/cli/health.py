"""`shiftboss health`: the health of each worker and its figures for today."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftboss.cli.output import Columns, Json, Row, ask, show_rows, span
from shiftboss.model.errors import NotFound

app = typer.Typer(add_completion=False)


@app.command()
def health(
    worker_id: Annotated[str | None, typer.Argument(help="show only this worker")] = None,
    as_json: Json = False,
) -> None:
    """Show each worker's status, tasks, error rate, average duration, CPU and memory."""
    rows = ask(lambda db: db.workers.health(worker_id))
    if worker_id is not None and not rows:
        raise NotFound(f"there is no worker {worker_id!r}", hint="`shiftboss health` lists the workers")
    empty = "no workers: start one with `shiftboss worker module:app`"
    show_rows(rows, COLUMNS, as_json=as_json, empty=empty)


def _used(row: Row, key: str, unit: str) -> str:
    value = row["resource_usage"].get(key)
    return "" if value is None else f"{value:.0f}{unit}"


COLUMNS: Columns = {
    "worker": "worker_id",
    "status": "status",
    "last beat": "last_heartbeat",
    "tasks": "active_tasks",
    "today": "processed_today",
    "errors": lambda row: f"{row['error_rate']:.1%}",
    "average": lambda row: span(row["avg_processing_time"]) if row["processed_today"] else "",
    "cpu": lambda row: _used(row, "cpu_percent", " %"),
    "memory": lambda row: _used(row, "memory_mb", " MB"),
}
