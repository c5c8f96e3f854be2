"""`shiftboss token`: tokens for the API and the coordinator."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from shiftboss.cli.operator import me, operating
from shiftboss.cli.output import Columns
from shiftboss.model.access import Role
from shiftboss.operations import Operations

app = typer.Typer(help="Tokens for the API and the coordinator.", add_completion=False)

COLUMNS: Columns = {
    "name": lambda row: row["name"],
    "role": lambda row: row["role"],
    "created": lambda row: row["created_at"],
    "used": lambda row: row["last_used_at"],
    "expires": lambda row: row["expires_at"],
    "state": lambda row: "revoked" if row["revoked_at"] else "live",
    "id": lambda row: row["id"],
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

    async def run() -> str:
        async with operating(Operations) as (_, operations):
            return await operations.create_token(me(), name, role, timedelta(days=days) if days else None)

    typer.echo(asyncio.run(run()))


@app.command("list")
def list_() -> None:
    """List the tokens, without their secrets."""
    from shiftboss.cli.output import ask, show_rows

    show_rows(ask(lambda db: db.tokens.list()), COLUMNS, empty="no tokens")


@app.command()
def revoke(which: Annotated[str, typer.Argument(help="its name or id")]) -> None:
    """Revoke a token and end the sessions that use it."""

    async def run() -> None:
        async with operating(Operations) as (_, operations):
            await operations.revoke_token(me(), which)

    asyncio.run(run())
    typer.echo(f"revoked {which}")
