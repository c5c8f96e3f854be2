"""Counts encrypted values by key: each value starts with the name of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shiftboss.db.database import Database

#: Columns that may contain encrypted values, at any depth: params may contain results of parent tasks.
COLUMNS = {
    "public.tasks": ("params::text", "result_data::text", "error_message", "progress_message", "wait_reason"),
    "shiftboss.past_attempts": ("error",),
    "shiftboss.steps": ("result::text", "question"),
    "shiftboss.sent_events": ("payload::text",),
    "shiftboss.parts": ("part::text",),
    "shiftboss.task_logs": ("message",),
    "shiftboss.schedules": ("task::text",),
    "shiftboss.error_groups": ("message",),
}
_NAMES = r"""SELECT n[1] AS name, count(*) AS values FROM {table}
    CROSS JOIN LATERAL regexp_matches(concat_ws(' ', {columns}), '\$enc(?::|": ?")([0-9a-f]{{8}}):', 'g') n
    GROUP BY 1"""


async def key_names(db: Database) -> dict[str, int]:
    """Return how many stored values need each key."""
    found: dict[str, int] = {}
    for table, columns in COLUMNS.items():
        for row in await db.fetch(_NAMES.format(table=table, columns=", ".join(columns))):
            found[row["name"]] = found.get(row["name"], 0) + row["values"]
    return found
