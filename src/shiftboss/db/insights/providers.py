"""AI providers as the fleet sees them: circuit, limits, spend, latency, and how well the cache works."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shiftboss.db.database import Database, Row


class Providers:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def status(self) -> list[Row]:
        """One row per provider that any process of the fleet has configured."""
        return await self._db.ai.ai_provider_status()

    async def cache(self) -> list[Row]:
        """Hits, misses, errors and hit rate of the last seven days, per task type."""
        return await self._db.ai.ai_cache_status()
