"""`shiftboss admin`: the HTTP service. `shiftboss token login`: a login link for the dashboard."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.token import RoleOption
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.model.access import Role
from shiftboss.model.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def admin(
    host: Annotated[str | None, typer.Option(help="address to listen on; default 127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="port to listen on; default 8888")
    ] = None,
) -> None:
    """Serve the HTTP API, the dashboard and metrics until Ctrl+C.

    Example: shiftboss admin --port 8080
    """
    asyncio.run(_serve(host, port))


async def _serve(host: str | None, port: int | None) -> None:
    from shiftboss.db import Database
    from shiftboss.db.connection import name_connections
    from shiftboss.extensions.admin.service import address, serve
    from shiftboss.lifecycle.ports import free_port, is_free
    from shiftboss.model.errors import UsageError

    settings = Settings.load()
    chosen = AdminSettings.of(settings)
    bound = host or chosen.host, chosen.port if port is None else port
    if not is_free(*bound):
        raise UsageError(
            f"port {bound[1]} of {bound[0]} cannot be used: another process has it, or it is not allowed",
            hint="choose another one with --port, or stop that process",
        )
    bound = bound[0], bound[1] or free_port(bound[0])  # printed, so it must be known before
    where = address(*bound)
    name_connections("admin")
    async with await Database.open() as db:
        say = partial(typer.echo, f"serving {where} (API: {where}/api/docs)")
        await serve(db, settings, host=host, port=bound[1], checked=say)


def login(
    role: RoleOption = Role.ADMIN,
    minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="how long the link is valid")] = 10.0,
) -> None:
    """Print a login link for the dashboard that works once."""
    from shiftboss.extensions.admin.service import address

    code = act(lambda _, operations: operations.create_login(me(), role, timedelta(minutes=minutes)))
    admin = AdminSettings.of(Settings.load())
    typer.echo(f"{address(admin.host, admin.port, tls=admin.tls_cert is not None)}/login/{code}")
