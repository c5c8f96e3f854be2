"""Error groups with failed tasks that can be retried, for the task list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.db.insights.cache import Cached
from shiftboss.db.insights.rows import OpenGroup

if TYPE_CHECKING:
    from shiftboss.db.database import Database

GROUPS = 8
LOOKED_AT = 1000

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
FROM counted f JOIN shiftboss.error_groups g ON g.id = f.error_group
ORDER BY f.tasks DESC, g.last_seen DESC LIMIT {GROUPS}"""  # noqa: S608 -- constants only


class Failures:
    def __init__(self, db: Database) -> None:
        self._groups: Cached[list[OpenGroup]] = Cached(lambda: db.fetch_as(OpenGroup, _OPEN))

    async def groups(self) -> list[OpenGroup]:
        """Return the groups with the most of the latest failed tasks. `more`: older ones are not counted."""
        return await self._groups.get()
