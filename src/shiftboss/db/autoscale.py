"""The autoscaler's settings by queue, and the load that it reacts to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from shiftboss.db.connection import Row
from shiftboss.db.family import Family


class Autoscale(Family):
    async def set_autoscale(self, queue: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Change the given keys and return the stored settings. The value None restores a default."""
        return await self._db.call_value(dict[str, Any], "set_autoscale", queue, settings)

    async def configure_autoscale(self, queue: str, settings: dict[str, Any]) -> bool:
        """Change the given keys unless the same configuration was applied before. Return whether it was."""
        return await self._db.call_value(bool, "configure_autoscale", queue, settings)

    async def get(self, queue: str) -> dict[str, Any]:
        """Return the keys that are stored for a queue."""
        row = await self._db.fetch_one("SELECT settings FROM shiftboss.autoscale WHERE queue = %s", [queue])
        return row["settings"] if row else {}

    async def all(self) -> list[Row]:
        """Return every queue with its stored keys and the seconds since its number of workers changed."""
        return await self._db.fetch(
            "SELECT queue, settings, extract(epoch FROM shiftboss.now() - scaled_at)::float8 AS since_change"
            " FROM shiftboss.autoscale ORDER BY queue"
        )

    async def load(self, queue: str | None = None, window: timedelta = timedelta(minutes=1)) -> Row:
        """Return the figures that the autoscaler bases its decisions on."""
        return (await self._db.call_rows("load", queue, window))[0]

    async def scaled(self, queue: str) -> None:
        """Record that the number of workers of a queue has just changed."""
        await self._db.execute(
            "UPDATE shiftboss.autoscale SET scaled_at = shiftboss.now() WHERE queue = %s", [queue]
        )
