"""`shiftboss token login`: print a login link for the dashboard."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

import typer

from shiftboss.cli.operator import me, operating
from shiftboss.cli.token import RoleOption
from shiftboss.extensions.admin.service import address
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.model.access import Role
from shiftboss.model.settings import Settings
from shiftboss.operations import Operations


def login(
    role: RoleOption = Role.ADMIN,
    minutes: Annotated[float, typer.Option(min=0.1, max=1440, help="how long the link is valid")] = 10.0,
) -> None:
    """Print a login link for the dashboard that works once."""

    async def run() -> str:
        async with operating(Operations) as (_, operations):
            code = await operations.create_login(me(), role, timedelta(minutes=minutes))
        admin = AdminSettings.of(Settings.load())
        return f"{address(admin.host, admin.port, tls=admin.tls_cert is not None)}/login/{code}"

    typer.echo(asyncio.run(run()))
