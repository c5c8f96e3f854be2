"""Groups of errors: failures of one type at one place; when, how often, on which workers and versions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from datetime import datetime

    from shiftboss.db.database import Database, Row

_GROUPS = """SELECT * FROM shiftboss.error_groups WHERE last_seen >= coalesce(%s::timestamptz, '-infinity')
    ORDER BY last_seen DESC, id LIMIT %s"""
# The last attempt decides: a task that failed in two ways belongs to the group that ended it.
_MEMBERS = """SELECT t.id FROM shiftboss.past_attempts a JOIN public.tasks t ON t.id = a.task_id
    WHERE a.error_group = %s AND t.status = 'Failed' AND t.run_id IS NULL
      AND NOT EXISTS (SELECT FROM shiftboss.past_attempts x
                      WHERE x.task_id = a.task_id AND x.ended_at > a.ended_at)
    ORDER BY a.ended_at DESC LIMIT %s"""


class Errors:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def groups(self, since: datetime | None = None, limit: int = 50) -> list[Row]:
        """Groups, the one seen last first. Failures of the last seconds may not be counted yet."""
        return await self._db.fetch(_GROUPS, [since, limit])

    async def group(self, id: str) -> Row:
        """One group by its id or the first characters of it."""
        query = "SELECT * FROM shiftboss.error_groups WHERE starts_with(id, %s) ORDER BY id LIMIT 2"
        rows = await self._db.fetch(query, [id.lower()])
        if len(rows) != 1 or not id:
            what = "several groups of errors begin with" if rows else "there is no group of errors"
            raise NotFound(f"{what} {id!r}", hint="`shiftboss errors list` shows them")
        return rows[0]

    async def members(self, id: str, limit: int = 10_000) -> list[UUID]:
        """The failed tasks that this error ended; tasks of tracked runs are left to their runs."""
        return [row["id"] for row in await self._db.fetch(_MEMBERS, [id, limit])]
