"""What every route and page works with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from shiftboss.admin.access import Access
from shiftboss.admin.commands import Commands
from shiftboss.admin.stream import Hub
from shiftboss.bots.catalog import Catalog
from shiftboss.bots.registry import Bots, load_bots
from shiftboss.db import Database
from shiftboss.db.insights import TaskFilter
from shiftboss.model.access import Forbidden
from shiftboss.model.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from shiftboss.ai.engine import AI


class Desk:
    """The service's parts: read model (`db.insights`), commands, access, live changes, bots, keys."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self.db, self.settings = db, settings
        self.bots: Bots = load_bots(settings.bots.modules)
        self.catalog = Catalog(settings.bots.config_dir)
        self.access = Access(db, settings.admin)
        self.commands = Commands(db, settings, self.bots, self.catalog)
        self.hub = Hub(db, settings.database.direct_url)
        self._ai: AI | None = None
        self._providers: dict[str, bool] | None = None
        self._opening = asyncio.Lock()

    async def ai(self) -> AI:
        """The AI engine, opened when somebody searches by meaning for the first time."""
        from shiftboss.ai.engine import AI

        async with self._opening:
            if self._ai is None:
                self._ai = await AI.open(self.settings.ai, self.db)
            return self._ai

    async def providers(self) -> dict[str, bool]:
        """The providers of the fallback order, and whether each is set up in this process."""
        from shiftboss.ai.configure import configured

        if self._providers is None:
            self._providers = await asyncio.to_thread(configured, self.settings.ai)  # imports vendors' SDKs
        return self._providers

    def searchable(self, wanted: TaskFilter) -> TaskFilter:
        """The filter, unless it would tell by and by what is hidden."""
        if wanted.text and self.settings.admin.hide_payloads:
            raise Forbidden("params are hidden here, so they can not be searched", hint="leave out the text")
        return wanted

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While the service is up."""
        async with self.hub:
            yield
        if self._ai is not None:
            await self._ai.close()

    def attach(self, app: FastAPI) -> None:
        app.state.desk = self
        app.state.access = self.access


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


At = Annotated[Desk, Depends(_desk)]
