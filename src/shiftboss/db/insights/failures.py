"""Error groups with failed tasks that can be retried, for the task list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.db.insights.cache import Cached
from shiftboss.db.insights.rows import OpenGroup

if TYPE_CHECKING:
    from shiftboss.db.database import Database

GROUPS = 8
LOOKED_AT = 2000

# For each of the latest groups, count the failed tasks whose last attempt is among the group's latest
# attempts. The limits bound the cost beside a long history.
_OPEN = f"""SELECT g.id, g.error_type, g.place, g.message, g.last_seen, g.task_types, g.task_id, f.tasks
    FROM (SELECT * FROM shiftboss.error_groups ORDER BY last_seen DESC LIMIT 50) g
    CROSS JOIN LATERAL (
        SELECT count(*) AS tasks FROM (
            SELECT a.task_id, a.ended_at FROM shiftboss.past_attempts a WHERE a.error_group = g.id
            ORDER BY a.ended_at DESC LIMIT {LOOKED_AT}) a
        JOIN public.tasks t ON t.id = a.task_id AND t.status = 'Failed'
        WHERE NOT EXISTS (SELECT FROM shiftboss.past_attempts later
            WHERE later.task_id = a.task_id AND later.ended_at > a.ended_at)) f
    WHERE f.tasks > 0 ORDER BY f.tasks DESC, g.last_seen DESC LIMIT {GROUPS}"""  # noqa: S608 -- constants only


class Failures:
    def __init__(self, db: Database) -> None:
        self._groups: Cached[list[OpenGroup]] = Cached(lambda: db.fetch_as(OpenGroup, _OPEN))

    async def groups(self) -> list[OpenGroup]:
        """Return the groups with the most failed tasks, with their counts."""
        return await self._groups.get()
