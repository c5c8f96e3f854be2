"""The details of one task: steps, stream, events, logs and relatives."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from shiftboss.db.family import Family
from shiftboss.db.insights.rows import LogRow, PartRow, Relative, StepRow

if TYPE_CHECKING:
    from shiftboss.db.connection import Row

LEVELS = 3
MOST = 60
SHOWN_STEPS = 300
SHOWN_PARTS = 500
LARGEST_RESULT = 20_000

# Walk the dependencies up (`above`) and down (`below`) from the task, then keep the nearest tasks of both.
# A recursive query produces only the rows that are fetched, so the LIMITs bound the work in a wide graph. The
# inner one also bounds the estimate, by which PostgreSQL allocates the memory of the recursion.
_NEAR = """
WITH RECURSIVE above(id, depth) AS (
    SELECT %(id)s::uuid, 0
    UNION
    SELECT p.id, a.depth - 1 FROM above a CROSS JOIN LATERAL (
        SELECT unnest(t.depends_on) AS id FROM public.tasks t WHERE t.id = a.id
        UNION ALL SELECT s.task_id FROM shiftboss.steps s WHERE s.child_id = a.id) p
    WHERE a.depth > -%(levels)s
), below(id, depth) AS (
    SELECT %(id)s::uuid, 0
    UNION
    SELECT c.id, b.depth + 1 FROM below b CROSS JOIN LATERAL (
        (SELECT t.id FROM public.tasks t WHERE t.depends_on @> ARRAY[b.id] LIMIT %(most)s)
        UNION ALL
        SELECT s.child_id FROM shiftboss.steps s WHERE s.task_id = b.id AND s.child_id IS NOT NULL) c
    WHERE b.depth < %(levels)s
), near AS (
    SELECT id, min(abs(depth)) AS distance FROM (
        (SELECT * FROM above LIMIT %(most)s) UNION ALL (SELECT * FROM below LIMIT %(most)s)) n GROUP BY id
)
SELECT t.id, t.task_type, t.status, t.depends_on,
    ARRAY(SELECT s.child_id FROM shiftboss.steps s
        WHERE s.task_id = t.id AND s.child_id IS NOT NULL) AS children
FROM near n JOIN public.tasks t ON t.id = n.id ORDER BY n.distance, t.created_at, t.id LIMIT %(most)s
"""
_STEPS = """
SELECT kind, name, ordinal, state, attempt, started_at, ended_at, until, event_key, child_id, question,
    schema, answered_by, result IS NOT NULL AS has_result,
    CASE WHEN pg_column_size(result) < %(largest)s THEN result END AS result
FROM shiftboss.steps WHERE task_id = %(id)s AND ordinal > 0
ORDER BY started_at DESC, ended_at DESC, name, ordinal LIMIT %(limit)s
"""


class Life(Family):
    async def relatives(self, id: UUID) -> list[Relative]:
        """Return the task and up to 60 related tasks, nearest first, with their parents and children."""
        return await self._db.fetch_as(Relative, _NEAR, {"id": id, "levels": LEVELS, "most": MOST})

    async def steps(self, id: UUID) -> list[StepRow]:
        """Return the latest steps and waits, oldest first. Results that are too large to show are omitted."""
        given = {"id": id, "limit": SHOWN_STEPS, "largest": LARGEST_RESULT}
        return (await self._db.fetch_as(StepRow, _STEPS, given))[::-1]

    async def parts(self, id: UUID) -> list[PartRow]:
        """Return the last parts that the task emitted, oldest first: seq, attempt, restart, part, at."""
        rows = await self._db.fetch_as(
            PartRow,
            "SELECT seq, attempt, restart, part, at FROM shiftboss.parts WHERE task_id = %s"
            " ORDER BY seq DESC LIMIT %s",
            [id, SHOWN_PARTS],
        )
        return rows[::-1]

    async def events(self, id: UUID) -> list[Row]:
        """Return the latest events about this task, newest first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.events WHERE task_id = %s ORDER BY id DESC LIMIT 50", [id]
        )

    async def logs(self, id: UUID, limit: int) -> list[LogRow]:
        """Return the last log lines of the task, oldest first."""
        rows = await self._db.fetch_as(
            LogRow,
            "SELECT id, attempt, step, at, level, message, dropped FROM shiftboss.task_logs"
            " WHERE task_id = %s ORDER BY id DESC LIMIT %s",
            [id, limit],
        )
        for row in rows:
            row["level"] = logging.getLevelName(row["level"]).lower()
        return rows[::-1]
