"""`shiftboss encryption`: generate keys, and show which keys the stored values need."""

from __future__ import annotations

from typing import Any

import typer

from shiftboss.cli.output import Columns, Json, ask, show_rows

app = typer.Typer(help="Payload encryption: new-key, status.", add_completion=False, no_args_is_help=True)

COLUMNS: Columns = {
    "key": "key",
    "use": "use",
    "values": "values",
    "tables": lambda row: ", ".join(f"{name} {count}" for name, count in row["tables"].items()),
}


@app.command("new-key")
def new_key() -> None:
    """Print a new random key for `encryption.keys`. Keep it safe: payloads cannot be read without it."""
    from shiftboss.model.codec import new_key as made

    typer.echo(made())


@app.command()
def status(as_json: Json = False) -> None:
    """Show the configured keys, and how many stored values of which tables need each of them.

    You can remove a key from the settings once no stored value needs it.
    """
    from shiftboss.model.codec import current

    names = current().names
    stored = ask(lambda db: db.insights.condition.keys())
    rows = [_row(name, names, stored) for name in [*names, *(name for name in stored if name not in names)]]
    empty = "nothing is encrypted: run `shiftboss encryption new-key` and put the key in encryption.keys"
    show_rows(rows, COLUMNS, as_json=as_json, empty=empty)


def _row(name: str, names: list[str], stored: dict[str, dict[str, int]]) -> dict[str, Any]:
    use = "missing" if name not in names else "encrypts and decrypts" if name == names[0] else "decrypts"
    tables = stored.get(name, {})
    return {"key": name, "use": use, "values": sum(tables.values()), "tables": tables}
