"""Error groups: failures of one exception type at one place in the code."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from shiftboss.db.insights.cache import Cached
from shiftboss.db.insights.rows import ErrorGroupRow, OpenGroup
from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from shiftboss.db.database import Database

OPEN_GROUPS = 8
LOOKED_AT = 1000

_GROUPS = """SELECT * FROM shiftboss.errors WHERE last_seen >= coalesce(%s::timestamptz, '-infinity')
    ORDER BY last_seen DESC, id LIMIT %s"""
# A task that failed in different ways belongs to the group of its last attempt.
_MEMBERS = """SELECT t.id FROM shiftboss.past_attempts a JOIN public.tasks t ON t.id = a.task_id
    WHERE a.error_group = %s AND t.status = 'Failed' AND t.run_id IS NULL
      AND NOT EXISTS (SELECT FROM shiftboss.past_attempts x
                      WHERE x.task_id = a.task_id AND x.ended_at > a.ended_at)
    ORDER BY a.ended_at DESC LIMIT %s"""

# The groups of the latest failed tasks. A task that failed in different ways belongs to the group of its last
# attempt. The limit bounds the cost beside a long history.
_OPEN = f"""
WITH latest AS MATERIALIZED (
    SELECT id FROM public.tasks WHERE status = 'Failed' ORDER BY generation_processed_at DESC, id DESC
    LIMIT {LOOKED_AT}
), counted AS (
    SELECT a.error_group, count(*) AS tasks FROM latest CROSS JOIN LATERAL (
        SELECT error_group FROM shiftboss.past_attempts WHERE task_id = latest.id
        ORDER BY ended_at DESC LIMIT 1) a
    GROUP BY 1
)
SELECT g.id, g.error_type, g.place, g.message, g.last_seen, g.task_types, g.task_id, f.tasks,
    (SELECT count(*) FROM latest) = {LOOKED_AT} AS more
FROM counted f JOIN shiftboss.errors g ON g.id = f.error_group
ORDER BY f.tasks DESC, g.last_seen DESC LIMIT {OPEN_GROUPS}"""  # noqa: S608 -- constants only


class Errors:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._open: Cached[list[OpenGroup]] = Cached(lambda: db.fetch_as(OpenGroup, _OPEN))

    async def open_groups(self) -> list[OpenGroup]:
        """Return the groups with the most of the latest failed tasks. `more`: older ones are not counted."""
        return await self._open.get()

    async def groups(self, since: datetime | None = None, limit: int = 50) -> list[ErrorGroupRow]:
        """Return groups, most recently seen first."""
        return await self._db.fetch_as(ErrorGroupRow, _GROUPS, [since, limit])

    async def group(self, id: str) -> ErrorGroupRow:
        """Return one group by its id or a unique prefix of it."""
        query = "SELECT * FROM shiftboss.errors WHERE starts_with(id, %s) ORDER BY id LIMIT 5"
        rows = await self._db.fetch_as(ErrorGroupRow, query, [id.lower()]) if id else []
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
