"""`shiftboss providers`: show the AI providers and their state."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import typer

from shiftboss.cli.output import Columns, Json, ask, on_terminal, show_rows
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.model.codec import shown

if TYPE_CHECKING:
    from shiftboss.db import Database

app = typer.Typer(add_completion=False)


def _use(used: int | None, limit: int | None = None) -> str:
    return f"{used or 0}" if limit is None else f"{used or 0}/{limit}"


def _money(spent: float | None, budget: float | None) -> str:
    return f"${spent or 0:.4f}" + ("" if budget is None else f"/${budget:.2f}")


COLUMNS: Columns = {
    "provider": "provider",
    "configured": "configured",
    "model": lambda row: row.get("model") or "–",
    "circuit": lambda row: row.get("circuit") or "–",
    "rpm": lambda row: _use(row.get("requests_last_minute"), row.get("requests_per_minute")),
    "tpm": lambda row: _use(row.get("tokens_last_minute"), row.get("tokens_per_minute")),
    "today": lambda row: _use(row.get("calls_today")),
    "spend": lambda row: _money(row.get("spend_today"), row.get("daily_budget")),
    "latency": lambda row: "–" if row.get("latency_ms") is None else f"{row['latency_ms']:.0f} ms",
    "last error": lambda row: shown(row.get("last_error") or "–")[:60],
}


@app.command()
def providers(as_json: Json = False) -> None:
    """Show the AI providers: configuration, circuit, use of limits, spend today and last error."""
    rows = ask(_status)
    if as_json or not on_terminal():
        show_rows(rows, COLUMNS, as_json=as_json)
        return
    show_rows(rows, {name: COLUMNS[name] for name in COLUMNS if name not in ("latency", "last error")})
    for row in rows:
        if row.get("last_error"):  # below the table, which must fit into 80 characters
            typer.echo(f"last error at {row['last_error_at']:%H:%M:%S}: {shown(row['last_error'])}")


async def _status(db: Database) -> list[dict[str, Any]]:
    from shiftboss.extensions.ai.configure import configured
    from shiftboss.model.settings import Settings

    here = configured(AISettings.of(Settings.load()))
    shared = {row["provider"]: row for row in await db.family(AIEngine).ai_provider_status()}
    names = [*here, *(name for name in shared if name not in here)]
    return [
        {"provider": name, "configured": here.get(name, False), **_plain(shared.get(name, {}))}
        for name in names
    ]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in row.items()}
