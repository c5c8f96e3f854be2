"""Error groups: failures of one exception type at one place in the code."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from shiftboss.db.family import Family
from shiftboss.db.insights.rows import ErrorGroup
from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from datetime import datetime


_GROUPS = """SELECT * FROM shiftboss.error_groups WHERE last_seen >= coalesce(%s::timestamptz, '-infinity')
    ORDER BY last_seen DESC, id LIMIT %s"""
# A task that failed in different ways belongs to the group of its last attempt.
_MEMBERS = """SELECT t.id FROM shiftboss.past_attempts a JOIN public.tasks t ON t.id = a.task_id
    WHERE a.error_group = %s AND t.status = 'Failed' AND t.run_id IS NULL
      AND NOT EXISTS (SELECT FROM shiftboss.past_attempts x
                      WHERE x.task_id = a.task_id AND x.ended_at > a.ended_at)
    ORDER BY a.ended_at DESC LIMIT %s"""


class Errors(Family):
    async def groups(self, since: datetime | None = None, limit: int = 50) -> list[ErrorGroup]:
        """Return groups, most recently seen first. Counts may lag by a few seconds."""
        return await self._db.fetch_as(ErrorGroup, _GROUPS, [since, limit])

    async def group(self, id: str) -> ErrorGroup:
        """Return one group by its id or a unique prefix of it."""
        query = "SELECT * FROM shiftboss.error_groups WHERE starts_with(id, %s) ORDER BY id LIMIT 5"
        rows = await self._db.fetch_as(ErrorGroup, query, [id.lower()]) if id else []
        if len(rows) > 1:
            shown = ", ".join(row["id"] for row in rows)
            raise NotFound(
                f"more than one error group starts with {id!r}",
                hint=f"add more characters of the id: {shown}",
            )
        if not rows:
            raise NotFound(f"there is no error group {id!r}", hint="`shiftboss errors list` lists the groups")
        return rows[0]

    async def members(self, id: str, limit: int = 10_000) -> list[UUID]:
        """Return the tasks that this error failed, without those with a run_id, which others retry."""
        return [row["id"] for row in await self._db.fetch(_MEMBERS, [id, limit])]
