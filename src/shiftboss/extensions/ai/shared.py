"""Shares one AI engine in a service, opened on first use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shiftboss.extensions.ai.settings import AISettings

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.extensions.ai.engine import AI
    from shiftboss.model.settings import Settings


class SharedAI:
    """The AI engine of a service: `await shared.engine()`."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db, self._settings = db, AISettings.of(settings)
        self._engine: AI | None = None
        self._providers: dict[str, bool] | None = None
        self._opening = asyncio.Lock()

    async def engine(self) -> AI:
        from shiftboss.extensions.ai.engine import AI

        async with self._opening:
            if self._engine is None:
                self._engine = await AI.open(self._settings, self._db)
            return self._engine

    async def providers(self) -> dict[str, bool]:
        """Return each provider of the fallback order, and whether it is configured in this process."""
        from shiftboss.extensions.ai.configure import configured

        if self._providers is None:
            # In a thread, because it imports the vendors' SDKs.
            self._providers = await asyncio.to_thread(configured, self._settings)
        return self._providers

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()
