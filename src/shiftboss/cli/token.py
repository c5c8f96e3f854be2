"""`shiftboss token`: who may use the API."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from shiftboss.cli.office import me, office
from shiftboss.model.access import Role

app = typer.Typer(help="Tokens for the API and the coordinator.", add_completion=False)

RoleOption = Annotated[Role, typer.Option(help="what it may do")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="whose it is, for the audit log")] = "admin",
    role: RoleOption = Role.VIEWER,
    days: Annotated[
        float | None, typer.Option(min=0.0, max=36_500, help="how long it is good; default for ever")
    ] = None,
) -> None:
    """Make a token and print it. It is shown this once; the database keeps only its hash."""

    async def run() -> str:
        async with office() as (_, commands):
            return await commands.create_token(me(), name, role, timedelta(days=days) if days else None)

    typer.echo(asyncio.run(run()))


@app.command("list")
def list_() -> None:
    """Show every token, without its secret."""
    from rich.console import Console
    from rich.table import Table

    async def run() -> Table:
        table = Table("name", "role", "made", "used", "until", "state", "id", box=None, header_style="bold")
        async with office() as (db, _):
            for row in await db.tokens.list():
                times = [
                    f"{row[key]:%Y-%m-%d %H:%M}" if row[key] else ""
                    for key in ("created_at", "last_used_at", "expires_at")
                ]
                table.add_row(
                    row["name"],
                    row["role"],
                    *times,
                    "revoked" if row["revoked_at"] else "live",
                    str(row["id"]),
                )
        return table

    Console().print(asyncio.run(run()))


@app.command()
def revoke(which: Annotated[str, typer.Argument(help="its name or id")]) -> None:
    """Take a token away; sessions made with it end as well."""

    async def run() -> None:
        async with office() as (_, commands):
            await commands.revoke_token(me(), which)

    asyncio.run(run())
    typer.echo(f"revoked {which}")


@app.command()
def login(
    role: RoleOption = Role.ADMIN,
    minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="how long the link is good")] = 10.0,
) -> None:
    """Print a link that logs a browser in, once."""

    async def run() -> str:
        from shiftboss.admin.service import address
        from shiftboss.model.settings import Settings

        async with office() as (_, commands):
            code = await commands.create_login(me(), role, timedelta(minutes=minutes))
        admin = Settings.load().admin
        return f"{address(admin.host, admin.port, tls=admin.tls_cert is not None)}/login/{code}"

    typer.echo(asyncio.run(run()))
