"""Alerts and their notifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.types.json import Jsonb

from shiftboss.db.connection import Row
from shiftboss.db.family import Family
from shiftboss.model.codec import current


class Alerts(Family):
    async def settle(
        self, rules: Sequence[str], found: list[dict[str, Any]], targets: Sequence[str], task: str | None
    ) -> list[Row]:
        """Start and end alerts according to what the rules found, and return the notifications to send."""
        # A message may quote an error, and so a payload.
        sealed = [one | {"message": current().text(one["message"])} for one in found]
        return await self._db.call_rows("settle_alerts", list(rules), Jsonb(sealed), list(targets), task)

    async def take_deliveries(self, targets: Sequence[str]) -> list[Row]:
        """Take the notifications that are due for these targets."""
        return await self._db.call_rows("take_deliveries", list(targets))

    async def delivered(self, id: int, error: str | None = None) -> None:
        """Record the result of a delivery attempt. No error means success."""
        await self._db.fetch("SELECT shiftboss.delivered(%s, %s)", [id, error])

    async def firing(self) -> list[Row]:
        """Return the alerts that have not ended, most severe and oldest first."""
        query = (
            "SELECT * FROM shiftboss.alerts WHERE ended_at IS NULL ORDER BY severity, started_at LIMIT 200"
        )
        return await self._db.fetch(query)

    async def latest(self, limit: int = 50) -> list[Row]:
        """Return the latest alerts, newest first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.alerts ORDER BY started_at DESC, id DESC LIMIT %s", [limit]
        )

    async def undelivered(self) -> list[Row]:
        """Return notifications that failed at least once and are still not delivered."""
        return await self._db.fetch(
            "SELECT d.*, a.rule"
            " FROM shiftboss.alert_deliveries d JOIN shiftboss.alerts a ON a.id = d.alert_id"
            " WHERE d.delivered_at IS NULL AND d.attempts > 1 ORDER BY d.id DESC LIMIT 50"
        )
