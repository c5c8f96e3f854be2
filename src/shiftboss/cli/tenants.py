"""`shiftboss tenants`: how the fleet is shared between tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Columns, Json, ask, say_change, show_rows

app = typer.Typer(help="Tenants: list, weight, reset.", add_completion=False, no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="the tenant")]

COLUMNS: Columns = {
    "tenant": "name",
    "weight": lambda row: f"{row['weight']:g}",
    "set": lambda row: "by hand" if row["set"] else "",
}


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List every tenant that has a weight or had tasks recently."""
    rows = ask(lambda db: db.fairness.tenants())
    show_rows(rows, COLUMNS, as_json=as_json, empty="no tenants yet")


@app.command()
def weight(
    name: Name,
    value: Annotated[
        float, typer.Argument(help="2 gives twice the share of the default, 1", metavar="WEIGHT", min=0.001)
    ],
    as_json: Json = False,
) -> None:
    """Set a tenant's share of the workers while tasks of several tenants are waiting.

    Example: shiftboss tenants weight acme 3
    """
    changed = act(lambda _, operations: operations.set_tenant_weight(me(), name, value))
    say_change(name, f"has weight {value:g}", changed, as_json)


@app.command()
def reset(name: Name, as_json: Json = False) -> None:
    """Reset a tenant's weight to the default, 1."""
    changed = act(lambda _, operations: operations.set_tenant_weight(me(), name, None))
    say_change(name, "has weight 1", changed, as_json)
