"""What every route and page works with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from shiftboss.admin.access import Access
from shiftboss.admin.commands import Commands
from shiftboss.admin.stream import Hub
from shiftboss.bots.catalog import Catalog
from shiftboss.bots.registry import Bots, load_bots
from shiftboss.db import Database
from shiftboss.model.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI


class Desk:
    """The service's parts: read model (`db.insights`), commands, access, live changes, bots, keys."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self.db, self.settings = db, settings
        self.bots: Bots = load_bots(settings.bots.modules)
        self.catalog = Catalog(settings.bots.config_dir)
        self.access = Access(db, settings.admin)
        self.commands = Commands(db, settings, self.bots, self.catalog)
        self.hub = Hub(db, settings.database.direct_url)

    def attach(self, app: FastAPI) -> None:
        app.state.desk = self
        app.state.access = self.access


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


At = Annotated[Desk, Depends(_desk)]
