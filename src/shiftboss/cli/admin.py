"""`shiftboss admin`: the HTTP service."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

app = typer.Typer(help="The HTTP service: API, dashboard, metrics.", add_completion=False)


@app.callback()
def _noun() -> None:
    """The HTTP service: API, dashboard, metrics."""


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="the address to serve; default 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="default 8888")] = None,
) -> None:
    """Serve the API and the dashboard until a signal."""
    asyncio.run(_serve(host, port))


async def _serve(host: str | None, port: int | None) -> None:
    from shiftboss.admin.service import address, serve
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings

    settings = Settings.load()
    where = address(host or settings.admin.host, settings.admin.port if port is None else port)
    async with await Database.open() as db:
        typer.echo(f"serving {where} (API: {where}/api/docs)")
        await serve(db, settings, host=host, port=port)
