"""Starts the admin service in `shiftboss up` and prints a login link."""

from __future__ import annotations

import getpass
from datetime import timedelta

from shiftboss.app.up import Up
from shiftboss.extensions.admin.service import AdminService
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.lifecycle.ports import is_free
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import UsageError

LINK_LIFE = timedelta(hours=12)
PORTS_TO_TRY = 20


async def start(up: Up) -> None:
    """Serve on the configured port. If it is the default and in use, take the next free one."""
    chosen = AdminSettings.of(up.settings)
    fixed = up.settings.source_of("admin.port") != "default"
    ports = range(chosen.port, chosen.port + (1 if fixed else PORTS_TO_TRY))
    port = next((port for port in ports if port == 0 or is_free(chosen.host, port)), None)
    if port is None:
        raise UsageError(f"port {chosen.port} is already in use", hint="choose another one with --port")
    web = AdminService(up.db, up.settings, chosen.host, port)
    await up.enter(web)

    async def link() -> None:
        who = Principal(getpass.getuser(), Role.ADMIN)
        code = await web.admin.commands.create_login(who, Role.ADMIN, LINK_LIFE)
        hours = LINK_LIFE.seconds // 3600
        up.say("dashboard", f"{web.url}/login/{code}  (valid once, for {hours} h)")

    up.when_ready(link)
