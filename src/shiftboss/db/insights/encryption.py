"""Counts encrypted values by key: each value starts with the name of its key."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from shiftboss.db.sqlfiles import all_trees

if TYPE_CHECKING:
    from shiftboss.db.database import Database

_COLUMNS = """
SELECT c.oid::regclass::text AS table, string_agg(format('%%I', a.attname), ', ') AS columns
FROM unnest(%s::text[]) w (name)
JOIN pg_catalog.pg_class c ON c.oid = to_regclass(w.name) AND has_table_privilege(c.oid, 'SELECT')
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.atttypid IN ('text'::regtype, 'jsonb'::regtype)
GROUP BY c.oid ORDER BY 1
"""
# A value may contain others: params contain the results of parent tasks.
_NAMES = r"""
SELECT n[1] AS name, count(*) AS values FROM (SELECT concat_ws(' ', {columns}) AS texts FROM {table}) t
CROSS JOIN LATERAL regexp_matches(t.texts, '\$enc(?::|": ?")([0-9a-f]{{8}}):', 'g') n
WHERE t.texts LIKE '%$enc%' GROUP BY 1
"""


async def key_names(db: Database) -> dict[str, dict[str, int]]:
    """Return how many values of each table need each key, over all tables of Shiftboss and its extensions."""
    tables = [name for tree in all_trees() for file in tree.migrations for name in file.tables]
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in await db.fetch(_COLUMNS, [sorted(set(tables))]):
        for key in await db.fetch(_NAMES.format(**row)):
            found[key["name"]][row["table"]] = key["values"]
    return found
