"""Operations on runs."""

from __future__ import annotations

from uuid import UUID

from shiftboss.extensions.runs.store import Runs
from shiftboss.model.access import Principal, Role
from shiftboss.operations import Audited


class RunOperations(Audited):
    """Cancels runs."""

    async def cancel_run(self, who: Principal, id: UUID, reason: str | None = None) -> None:
        async with self._recorded(who, Role.OPERATOR, "run.cancel", id):
            await self._db.family(Runs).cancel_run(id, reason or f"by {who.name}")
