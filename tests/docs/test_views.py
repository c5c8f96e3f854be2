"""The columns of the views in the SQL reference are those of the database.

To accept a change: UPDATE_SNAPSHOTS=1 pytest tests/docs/test_views.py && script/reference
"""

from __future__ import annotations

import json
import os

from shiftboss.db import Database
from tests.docs.blocks import ROOT

FILE = ROOT / "script" / "manual" / "views.json"
COLUMNS = """
SELECT n.nspname || '.' || c.relname AS view,
    string_agg(format('`%s` %s', a.attname, replace(format_type(a.atttypid, NULL), 'timestamp with time zone', 'timestamptz')),
               ', ' ORDER BY a.attnum) AS columns
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind = 'v' AND n.nspname IN ('public', 'shiftboss', 'ai', 'journal')
GROUP BY 1 ORDER BY 1
"""


async def test_the_reference_lists_the_columns_of_every_view(db: Database) -> None:
    text = json.dumps({row["view"]: row["columns"] for row in await db.fetch(COLUMNS)}, indent=1) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        FILE.write_text(text)
    assert FILE.read_text() == text, __doc__
