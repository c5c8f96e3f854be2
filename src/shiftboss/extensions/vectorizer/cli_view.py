"""Renders vectorizers on a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from shiftboss.cli.output import Columns, console, on_terminal, show_rows

Rows = Sequence[dict[str, Any]]
COLOURS = {"idle": "green", "working": "cyan", "updating": "cyan", "paused": "yellow", "deferred": "yellow"}
WATCH_SECONDS = 1.0


def status_table(
    rows: Rows, extra: Callable[[dict[str, Any]], RenderableType] | None = None
) -> RenderableType:
    table = Table("id", "name", "source", "state", "pending", "failed", "rows/s", "left", box=None)
    if extra is not None:
        table.add_column("progress", width=30)
    for row in rows:
        colour = COLOURS.get(row["state"], "red")
        cells: list[RenderableType] = [
            str(row["id"]), escape(row["name"] or ""), escape(row["source_table"]),
            f"[{colour}]{row['state']}[/]", f"{_waiting(row):,}", f"{row['failed']:,}",
            _or_dash(row["rows_per_second"]), _or_dash(row["time_left"]),
        ]  # fmt: skip
        table.add_row(*cells, *([extra(row)] if extra else []))
    return Group(table, *_reasons(rows)) if rows else "no vectorizers"


async def watch_status(look: Callable[[], Awaitable[Rows]]) -> None:
    """Refresh the status until interrupted. A bar shows progress since the highest number of pending rows."""
    most: dict[int, int] = {}

    def bar(row: dict[str, Any]) -> RenderableType:
        waiting = _waiting(row)
        most[row["id"]] = peak = max(most.get(row["id"], 0), waiting)
        return ProgressBar(total=max(peak, 1), completed=peak - waiting if peak else 1)

    with Live(refresh_per_second=4) as live:
        while True:
            live.update(status_table(await look(), bar))
            await asyncio.sleep(WATCH_SECONDS)


def show_status(rows: Rows) -> None:
    """Print the table with the reasons of deferred vectorizers, or lines for a pipe."""
    if on_terminal():
        console().print(status_table(rows))
    else:
        show_rows(rows, STATUS)


def _reasons(rows: Rows) -> Iterable[str]:
    for row in rows:
        if row["state"] == "deferred":
            until = f"{row['deferred_until']:%H:%M:%S}"
            yield f"[yellow]{escape(row['name'])}[/] is deferred until {until}: {escape(row['defer_reason'])}"
        if row["index_state"].endswith("%"):
            yield f"[cyan]{escape(row['name'])}[/] {row['index_state']}"


def _waiting(row: Mapping[str, Any]) -> int:
    return int(row["pending"] + (row["update_pending"] or 0))


def _key(key: dict[str, str]) -> str:
    parts = key.values() if len(key) == 1 else (f"{name}={value}" for name, value in key.items())
    return ", ".join(parts)


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)


STATUS: Columns = {
    "id": "id", "name": "name", "source": "source_table", "state": "state", "pending": _waiting,
    "failed": "failed", "rows/s": "rows_per_second", "left": "time_left", "reason": "defer_reason",
}  # fmt: skip
ERRORS: Columns = {
    "vectorizer": "name", "key": lambda row: _key(row["key"]), "step": "step", "tries": "attempts",
    "state": "state", "when": "failed_at", "reason": "reason",
}  # fmt: skip
FOUND: Columns = {
    "distance": lambda row: "–" if row["distance"] is None else f"{row['distance']:.3f}",
    "score": lambda row: f"{row['score']:.4f}",
    "key": lambda row: _key(row["key"]),
    "chunk": "chunk",
}
