"""The SQL reference has the columns of every view, and every table and view has a comment.

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


BARE = """
SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v') AND n.nspname IN ('public', 'shiftboss', 'ai', 'journal')
    AND obj_description(c.oid, 'pg_class') IS NULL
"""


async def test_every_table_and_view_has_a_comment(db: Database) -> None:
    assert await db.fetch(BARE) == [], "add it to views/99_comments.sql or to that of its extension"


async def test_a_comment_does_not_wait_for_a_vacuum(db: Database) -> None:
    """Another session holds the lock of VACUUM. The next migration sets the comment."""
    set_it = "SELECT shiftboss.describe('public.tasks', 'other'), obj_description('public.tasks'::regclass) AS text"
    async with db.transaction() as vacuum:
        await vacuum.execute("LOCK TABLE public.tasks IN SHARE UPDATE EXCLUSIVE MODE")
        before = await db.fetch_one(set_it)
        assert before is not None
        assert before["text"] != "other"
    await db.execute(set_it)
    after = await db.fetch_one("SELECT obj_description('public.tasks'::regclass, 'pg_class') AS text")
    assert after == {"text": "other"}
