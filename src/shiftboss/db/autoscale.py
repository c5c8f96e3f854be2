"""The autoscaler's settings by queue, and the load that it reacts to."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shiftboss.db.connection import Row

if TYPE_CHECKING:
    from shiftboss.db.database import Database


class Autoscale:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def set_autoscale(self, queue: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Change the given keys and return the stored settings. The value None restores a default."""
        row = await self._db.fetch_one(
            "SELECT shiftboss.set_autoscale(%s, %s) AS settings", [queue, settings]
        )
        assert row is not None
        stored: dict[str, Any] = row["settings"]
        return stored

    async def configure_autoscale(self, queue: str, settings: dict[str, Any]) -> bool:
        """Change the given keys unless the same configuration was applied before. Return whether it was."""
        row = await self._db.fetch_one(
            "SELECT shiftboss.configure_autoscale(%s, %s) AS changed", [queue, settings]
        )
        return bool(row and row["changed"])

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
        row = await self._db.fetch_one("SELECT * FROM shiftboss.load(%s, %s)", [queue, window])
        assert row is not None
        return row

    async def scaled(self, queue: str) -> None:
        """Record that the number of workers of a queue has just changed."""
        await self._db.execute(
            "UPDATE shiftboss.autoscale SET scaled_at = shiftboss.now() WHERE queue = %s", [queue]
        )
