"""Worker tracking in the schema `ai`. Each method calls the SQL function of the same name."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from shiftboss.db.family import Family
from shiftboss.model.task import storable

# information_schema lists only tables that the role has a privilege on; the catalog lists all.
FIND = """
SELECT EXISTS (SELECT FROM information_schema.tables
               WHERE table_schema = 'ai' AND table_name = 'vectorizer_worker_process') AS visible,
       EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'ai' AND c.relname = 'vectorizer_worker_process') AS present
"""


class Availability(StrEnum):
    """Whether tracking can be used. HIDDEN means a missing privilege, ABSENT a missing table."""

    AVAILABLE = "available"
    HIDDEN = "hidden"
    ABSENT = "absent"


class Tracking(Family):
    """The incarnations of worker processes and the totals of vectorizers."""

    async def available(self) -> Availability:
        row = (await self._db.fetch(FIND))[0]
        if row["visible"]:
            return Availability.AVAILABLE
        return Availability.HIDDEN if row["present"] else Availability.ABSENT

    async def worker_start(self, version: str, expected_heartbeat_interval: timedelta) -> UUID:
        return await self._db.value(
            UUID, "SELECT ai._worker_start(%s, %s)", [version, expected_heartbeat_interval]
        )

    async def worker_heartbeat(
        self, worker_id: UUID, successes: int, errors: int, error_message: str | None
    ) -> None:
        await self._db.execute(
            "SELECT ai._worker_heartbeat(%s, %s, %s, %s)",
            [worker_id, successes, errors, error_message and storable(error_message)],
        )

    async def worker_progress(
        self, worker_id: UUID | None, vectorizer_id: int, successes: int, error_message: str | None
    ) -> None:
        await self._db.execute(
            "SELECT ai._worker_progress(%s, %s, %s, %s)",
            [worker_id, vectorizer_id, successes, error_message and storable(error_message)],
        )
