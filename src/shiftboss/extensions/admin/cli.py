"""`shiftboss admin`: the HTTP service."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from shiftboss.extensions.admin.settings import AdminSettings

app = typer.Typer(help="The HTTP service: API, dashboard, metrics.", add_completion=False)

Host = Annotated[str | None, typer.Option(help="address to listen on; default 127.0.0.1")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="port to listen on; default 8888")]


@app.callback(invoke_without_command=True)
def admin(context: typer.Context, host: Host = None, port: Port = None) -> None:
    """Serve the API and the dashboard until a signal arrives.

    Example: shiftboss admin --port 8080
    """
    if context.invoked_subcommand is None:
        asyncio.run(_serve(host, port))


@app.command(hidden=True)
def serve(host: Host = None, port: Port = None) -> None:
    """The same as `shiftboss admin`."""
    asyncio.run(_serve(host, port))


async def _serve(host: str | None, port: int | None) -> None:
    from shiftboss.db import Database
    from shiftboss.extensions.admin.service import address, serve
    from shiftboss.model.settings import Settings

    settings = Settings.load()
    where = address(
        host or AdminSettings.of(settings).host, AdminSettings.of(settings).port if port is None else port
    )
    async with await Database.open() as db:
        typer.echo(f"serving {where} (API: {where}/api/docs)")
        await serve(db, settings, host=host, port=port)
