"""Named leases. Each method calls the SQL function of the same name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from shiftboss.db.connection import Row
from shiftboss.db.family import Family


class LeaseHolder(NamedTuple):
    """The current holder of a lease."""

    token: UUID
    holder: dict[str, Any]


class Leases(Family):
    async def acquire_lease(
        self,
        name: str,
        token: UUID,
        holder: dict[str, Any],
        duration: timedelta,
        *,
        event: str | None = None,
        over: UUID | None = None,
    ) -> LeaseHolder | None:
        """Take the lease if it is free, and return its holder. None if it was released just now."""
        row = await self._db.fetch_one(
            "SELECT * FROM shiftboss.acquire_lease(%s, %s, %s, %s, %s, %s)",
            [name, token, holder, duration, event, over],
        )
        return None if row is None else LeaseHolder(**row)

    async def renew_lease(self, name: str, token: UUID) -> bool:
        """Extend the lease. Return False if it is no longer held with this token."""
        return await self._db.call_value(bool, "renew_lease", name, token)

    async def release_lease(self, name: str, token: UUID) -> bool:
        """Release the lease immediately. Return False if it was not held with this token."""
        return await self._db.call_value(bool, "release_lease", name, token)

    async def all(self) -> list[Row]:
        """Return every lease with its holder, ordered by name."""
        return await self._db.fetch("SELECT * FROM shiftboss.leases ORDER BY name")
