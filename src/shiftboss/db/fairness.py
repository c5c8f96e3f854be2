"""Who goes first: shares of tenants, and priorities that age."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shiftboss.db.connection import Row

if TYPE_CHECKING:
    from shiftboss.db.database import Database

TENANTS = """
SELECT name, coalesce(t.weight, 1)::double precision AS weight, t.name IS NOT NULL AS set
FROM shiftboss.tenants t
FULL JOIN (SELECT DISTINCT tenant AS name FROM shiftboss.every_lane() WHERE tenant IS NOT NULL) l USING (name)
ORDER BY name LIMIT 10000
"""


class Fairness:
    """Everything that decides between tasks of one priority, or lifts it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def tenants(self) -> list[Row]:
        """Every tenant that has a weight or had tasks lately; `set` says whether the weight was given."""
        return await self._db.fetch(TENANTS)

    async def set_tenant_weight(self, name: str, weight: float | None) -> bool:
        """Give a tenant so much next to others that wait (1 unless set); None forgets it. Did it change?"""
        row = await self._db.fetch_one(
            "SELECT shiftboss.set_tenant_weight(%s, %s) AS changed", [name, weight]
        )
        return bool(row and row["changed"])

    async def ageing(self) -> timedelta | None:
        """How long a task waits for one more point of priority; None: priorities do not age."""
        row = await self._db.fetch_one("SELECT shiftboss.ageing() AS every")
        return row["every"] if row else None

    async def set_ageing(self, every: timedelta | None) -> None:
        """Let waiting tasks gain one point of priority this often; None turns that off."""
        await self._db.execute("SELECT shiftboss.set_ageing(%s)", [every])
