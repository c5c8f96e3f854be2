"""`shiftboss providers`: show the AI providers and their state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from shiftboss.cli.output import Json, ask, say_json
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.model.codec import shown

if TYPE_CHECKING:
    from rich.table import Table

    from shiftboss.db import Database

app = typer.Typer(add_completion=False)
NUMBERS = ("rpm", "tpm", "today", "spend", "latency")


@app.command()
def providers(as_json: Json = False) -> None:
    """Show the AI providers: configuration, circuit, use of limits, spend today and last error."""
    rows = ask(_status)
    if as_json:
        say_json([{name: _plain(value) for name, value in row.items()} for row in rows])
        return
    from shiftboss.cli.output import on_terminal, say_lines

    if not on_terminal():
        say_lines(_cells(row) for row in rows)
        return
    from rich.console import Console

    Console().print(_table(rows))


async def _status(db: Database) -> list[dict[str, Any]]:
    from shiftboss.extensions.ai.configure import configured
    from shiftboss.model.settings import Settings

    here = configured(AISettings.of(Settings.load()))
    shared = {row["provider"]: row for row in await db.family(AIEngine).ai_provider_status()}
    names = [*here, *(name for name in shared if name not in here)]
    return [{"provider": name, "configured": here.get(name, False), **shared.get(name, {})} for name in names]


def _plain(value: Any) -> Any:
    from decimal import Decimal

    return float(value) if isinstance(value, Decimal) else value


def _table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in ("provider", "configured", "model", "circuit", *NUMBERS, "last error"):
        table.add_column(name, justify="right" if name in NUMBERS else "left")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: dict[str, Any]) -> list[str]:
    latency = row.get("latency_ms")
    return [
        row["provider"],
        "yes" if row["configured"] else "no",
        row.get("model") or "–",
        row.get("circuit") or "–",
        _use(row.get("requests_last_minute"), row.get("requests_per_minute")),
        _use(row.get("tokens_last_minute"), row.get("tokens_per_minute")),
        _use(row.get("calls_today")),
        _money(row.get("spend_today"), row.get("daily_budget")),
        "–" if latency is None else f"{latency:.0f} ms",
        shown(row.get("last_error") or "–")[:60],
    ]


def _use(used: int | None, limit: int | None = None) -> str:
    return f"{used or 0}" if limit is None else f"{used or 0}/{limit}"


def _money(spent: Any, budget: Any) -> str:
    shown = f"${float(spent or 0):.4f}"
    return shown if budget is None else f"{shown}/${float(budget):.2f}"
