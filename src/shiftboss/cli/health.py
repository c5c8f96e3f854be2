"""`shiftboss health`: how each worker is, with its figures of today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import Json, Row, ask, say_json, show_rows, span
from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from shiftboss.db import Database

app = typer.Typer(add_completion=False)


@app.command()
def health(
    worker_id: Annotated[str | None, typer.Argument(help="one worker; default: all of them")] = None,
    as_json: Json = False,
) -> None:
    """Healthy, degraded or unhealthy; tasks held, done today, error rate, average time, CPU and memory."""

    async def question(db: Database) -> list[dict[str, Any]]:
        return await db.workers.health(worker_id)

    rows = ask(question)
    if worker_id is not None and not rows:
        raise NotFound(f"there is no worker {worker_id!r}", hint="`shiftboss health` shows them all")
    if as_json:
        say_json(rows)
        return
    show_rows(
        rows,
        {
            "worker": lambda row: row["worker_id"],
            "status": lambda row: row["status"],
            "last beat": lambda row: row["last_heartbeat"],
            "tasks": lambda row: row["active_tasks"],
            "today": lambda row: row["processed_today"],
            "errors": lambda row: f"{row['error_rate']:.1%}",
            "average": lambda row: span(row["avg_processing_time"]) if row["processed_today"] else "",
            "cpu": lambda row: _used(row, "cpu_percent", " %"),
            "memory": lambda row: _used(row, "memory_mb", " MB"),
        },
        empty="there are no workers; `shiftboss worker --help`",
    )


def _used(row: Row, key: str, unit: str) -> str:
    value = row["resource_usage"].get(key)
    return "" if value is None else f"{value:.0f}{unit}"
