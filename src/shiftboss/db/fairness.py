"""Fairness between tasks: weights of tenants, and ageing of priorities."""

from __future__ import annotations

from datetime import timedelta

from shiftboss.db.connection import Row
from shiftboss.db.family import Family

TENANTS = """
SELECT name, coalesce(t.weight, 1)::double precision AS weight, t.name IS NOT NULL AS set
FROM shiftboss.tenants t
FULL JOIN (SELECT DISTINCT tenant AS name FROM shiftboss.every_lane() WHERE tenant IS NOT NULL) l USING (name)
ORDER BY name LIMIT 10000
"""


class Fairness(Family):
    async def tenants(self) -> list[Row]:
        """Return tenants that have a weight (`set`) or had tasks recently."""
        return await self._db.fetch(TENANTS)

    async def set_tenant_weight(self, name: str, weight: float | None) -> bool:
        """Set a tenant's weight, or with None restore the default of 1. Return whether it changed."""
        return await self._db.call_value(bool, "set_tenant_weight", name, weight)

    async def ageing(self) -> timedelta | None:
        """Return the waiting time that raises a task's priority by one, or None if priorities do not age."""
        row = await self._db.fetch_one("SELECT shiftboss.ageing() AS every")
        return row["every"] if row else None

    async def set_ageing(self, every: timedelta | None) -> None:
        """Raise the priority of waiting tasks by one after each such interval. None turns this off."""
        await self._db.call("set_ageing", every)
