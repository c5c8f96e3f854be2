"""`shiftboss token`: tokens for the services of the fleet."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import Columns, Json, ask, show_rows
from shiftboss.model.access import Role

app = typer.Typer(help="Create, list and revoke tokens for the services of the fleet.", add_completion=False)

COLUMNS: Columns = {
    "name": "name",
    "role": "role",
    "created": "created_at",
    "used": "last_used_at",
    "expires": "expires_at",
    "state": lambda row: "revoked" if row["revoked_at"] else "live",
    "id": "id",
}
RoleOption = Annotated[Role, typer.Option(help="the role of the token")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="the token's name in the audit log")] = "admin",
    role: RoleOption = Role.VIEWER,
    days: Annotated[
        float | None,
        typer.Option(min=0.0, max=36_500, help="days until it expires; default: never"),
    ] = None,
) -> None:
    """Create a token and print it. It is shown only once: the database stores its hash."""
    lifetime = timedelta(days=days) if days else None
    typer.echo(act(lambda _, operations: operations.create_token(me(), name, role, lifetime)))


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the tokens, without their secrets."""
    show_rows(ask(lambda db: db.tokens.list()), COLUMNS, as_json=as_json, empty="no tokens")


@app.command()
def revoke(which: Annotated[str, typer.Argument(help="its name or id")]) -> None:
    """Revoke a token and end the sessions that use it."""
    act(lambda _, operations: operations.revoke_token(me(), which))
    typer.echo(f"revoked {which}")
