"""What commands that act as an operator share: who they are, and the commands of the admin room."""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.admin.commands import Commands
    from shiftboss.db import Database


def me() -> Principal:
    """Whoever can open the database may do anything; the audit log says who it was."""
    return Principal(f"cli:{getpass.getuser()}", Role.ADMIN)


@asynccontextmanager
async def office() -> AsyncIterator[tuple[Database, Commands]]:
    """An open database and the commands on it."""
    from shiftboss.admin.commands import Commands
    from shiftboss.bots.catalog import Catalog
    from shiftboss.bots.registry import load_bots
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings

    settings = Settings.load()
    async with await Database.open() as db:
        bots, catalog = load_bots(settings.bots.modules), Catalog(settings.bots.config_dir)
        yield db, Commands(db, settings, bots, catalog)


def run_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a run id", hint="`shiftboss runs list` shows them") from None
