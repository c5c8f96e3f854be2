"""A migration must not lock a large table for long: what would is refused here, and built ahead where it can be.

`python -m bench.upgrade` measures how long a database of 0.1.0 with 10 million tasks is locked.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import psycopg
import pytest

from shiftboss.db.ahead import build_ahead, indexes
from shiftboss.db.connection import connect
from shiftboss.db.migrate import Migration, is_current, migrate
from shiftboss.db.sqlfiles import SqlFile, all_trees
from tests.conftest import as_superuser
from tests.upgrade.test_upgrade import old_url  # noqa: F401 -- the fixture

DUMP = Path(__file__).parent / "0.1.0.sql.gz"
#: Tables that grow with the work done. What was made after 0.1.0 is empty when its first migration runs, not later.
LARGE = (
    "public.tasks|public.worker_runs|shiftboss.past_attempts|shiftboss.dependencies|shiftboss.events|shiftboss.steps"
    "|shiftboss.parts|shiftboss.task_logs|shiftboss.stats|shiftboss.audit|shiftboss.ai_calls"
    "|journal.entries|journal.embeddings|journal.results"
)
#: Landed before this check, each with what it costs: see docs/benchmarks/upgrade.md.
KNOWN = {
    ("0000_legacy", "UPDATE of a large table"): "changes a table from before Shiftboss only",
    ("0080_locks", "UPDATE of a large table"): "reads all tasks once",
    ("0100_ai_calls", "a volatile default"): "rewrites ai_calls, a row per AI call",
    ("0121_run_errors", "UPDATE of a large table"): "worker_runs has a row per run, not per task",
}
RULES = {
    "CREATE INDEX that cannot be built ahead": rf"CREATE (?:UNIQUE )?INDEX (?:(?!IF NOT EXISTS \w+ ON).)*?ON (?:{LARGE})\b",
    "ADD CONSTRAINT without NOT VALID": rf"ALTER TABLE (?:ONLY )?(?:{LARGE})\b[^;]*ADD (?:CONSTRAINT|CHECK|FOREIGN KEY)(?![^;]*NOT VALID)[^;]*",
    "UNIQUE or PRIMARY KEY without USING INDEX": rf"ALTER TABLE (?:{LARGE})\b[^;]*ADD (?:CONSTRAINT \w+ )?(?:UNIQUE|PRIMARY KEY)(?![^;]*USING INDEX)",
    "VALIDATE CONSTRAINT in the migration": rf"ALTER TABLE (?:{LARGE})\b[^;]*VALIDATE CONSTRAINT",
    "another type of a column": rf"ALTER TABLE (?:{LARGE})\b[^;]*ALTER (?:COLUMN )?\w+ (?:SET DATA )?TYPE",
    "SET NOT NULL": rf"ALTER TABLE (?:{LARGE})\b[^;]*SET NOT NULL",
    "a volatile default": rf"ALTER TABLE (?:{LARGE})\b[^;]*ADD (?:COLUMN )?[^;]*DEFAULT (?:gen_random_uuid|random|clock_timestamp|nextval)",
    "a stored column": rf"ALTER TABLE (?:{LARGE})\b[^;]*ADD (?:COLUMN )?[^;]*GENERATED [^;]*STORED",
    "a rewrite of the table": rf"(?:CLUSTER|TRUNCATE|REINDEX|VACUUM)[^;]*(?:{LARGE})\b|ALTER TABLE (?:{LARGE})\b[^;]*SET (?:UN)?LOGGED",
    "UPDATE of a large table": rf"(?:UPDATE|DELETE FROM) (?:{LARGE})\b",
}


def statements(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", text))


def broken_rules(file: SqlFile) -> set[str]:
    """Which rules a migration breaks. Tables that it creates itself are empty."""
    text = statements(file.sql)
    for made in re.findall(r"CREATE TABLE IF NOT EXISTS ([\w.]+)", text):
        text = re.sub(rf"\b{re.escape(made)}\b", "its.own", text)
    return {rule for rule, pattern in RULES.items() if re.search(pattern, text)}


def newer() -> list[SqlFile]:
    """Migrations that a database of 0.1.0 has not had."""
    ledger = gzip.decompress(DUMP.read_bytes()).decode().partition("INSERT INTO shiftboss.migrations")[2]
    had = set(re.findall(r"\('(\d{4}_\w+)'", ledger.partition(";")[0]))
    assert "0001_core" in had
    return [file for tree in all_trees() for file in tree.migrations if file.name not in had]


@pytest.mark.parametrize("file", newer(), ids=lambda file: file.name)
def test_no_migration_locks_a_large_table(file: SqlFile) -> None:
    found = {rule for rule in broken_rules(file) if (file.name, rule) not in KNOWN}
    assert not found, f"{file.name} would lock a large table: {', '.join(found)}"


@pytest.mark.parametrize(
    ("rule", "sql"),
    [
        (
            "ADD CONSTRAINT without NOT VALID",
            "ALTER TABLE public.tasks ADD CONSTRAINT c CHECK (priority > 0);",
        ),
        ("another type of a column", "ALTER TABLE public.tasks ALTER COLUMN priority TYPE int;"),
        ("SET NOT NULL", "ALTER TABLE public.tasks ALTER COLUMN run_at SET NOT NULL;"),
        ("a volatile default", "ALTER TABLE public.tasks ADD COLUMN x uuid DEFAULT gen_random_uuid();"),
        ("a stored column", "ALTER TABLE public.tasks ADD COLUMN x int GENERATED ALWAYS AS (1) STORED;"),
        ("a rewrite of the table", "CLUSTER public.tasks USING tasks_pkey;"),
        ("UPDATE of a large table", "UPDATE shiftboss.past_attempts SET error = NULL;"),
        ("CREATE INDEX that cannot be built ahead", "CREATE INDEX i ON public.tasks (id);"),
        ("VALIDATE CONSTRAINT in the migration", "ALTER TABLE public.tasks VALIDATE CONSTRAINT c;"),
        (
            "UNIQUE or PRIMARY KEY without USING INDEX",
            "ALTER TABLE public.tasks ADD CONSTRAINT u UNIQUE (id);",
        ),
    ],
)
def test_what_is_refused(rule: str, sql: str) -> None:
    assert rule in broken_rules(SqlFile("9999_test", sql))


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE public.tasks ADD CONSTRAINT c CHECK (priority > 0) NOT VALID;",
        "ALTER TABLE public.tasks ADD COLUMN IF NOT EXISTS x int NOT NULL DEFAULT 0;",
        "CREATE INDEX IF NOT EXISTS i ON public.tasks (id) WHERE status = 'Queued';",
        "CREATE TABLE IF NOT EXISTS shiftboss.steps (id int); CREATE INDEX i ON shiftboss.steps (id);",
        "UPDATE shiftboss.settings SET value = '1';",
    ],
)
def test_what_is_allowed(sql: str) -> None:
    assert broken_rules(SqlFile("9999_test", sql)) == set()


def test_every_known_exception_is_one() -> None:
    files = {file.name: file for file in newer()}
    assert {(name, rule) for name, rule in KNOWN if rule not in broken_rules(files[name])} == set()


async def test_indexes_of_large_tables_are_built_ahead(old_url: str) -> None:  # noqa: F811
    async with connect(old_url) as conn:
        built = await build_ahead(conn, await Migration(conn, None).indexes(), large=0)
    assert {"tasks_held", "tasks_suspended", "tasks_depends_on"} <= set(built)
    assert "past_attempts_group" not in built  # its column comes with the migration
    await migrate(old_url)
    assert await is_current(old_url)
    with psycopg.connect(old_url) as conn:
        assert conn.execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid").fetchone() == (0,)
        assert conn.execute("SELECT to_regclass('shiftboss.past_attempts_group') IS NULL").fetchone() == (
            False,
        )


FILL = """
INSERT INTO public.tasks (id, task_type, status, created_at, updated_at, generation_processed_at)
SELECT gen_random_uuid(), 'old', 'Complete', now(), now(), now() FROM generate_series(1, 20000)
"""
READ = "SELECT schemaname || '.' || relname AS name, seq_tup_read AS rows FROM pg_stat_xact_user_tables"


async def test_a_migration_reads_no_large_table_while_it_is_locked(old_url: str) -> None:  # noqa: F811
    with psycopg.connect(as_superuser(old_url), autocommit=True) as conn:
        conn.execute("SET session_replication_role = replica")
        conn.execute(FILL)
        conn.execute("ANALYZE public.tasks")
    async with connect(old_url) as conn:
        built = await build_ahead(conn, await Migration(conn).indexes(), large=0)
    assert {"idx_tasks_status_worker", "tasks_unusable_ahead"} <= set(built)
    async with connect(old_url) as conn, conn.transaction():
        await Migration(conn).run()
        read = {row["name"]: row["rows"] async for row in await conn.execute(READ)}
    assert read["public.tasks"] < 100
    left = "SELECT indexname, indexdef LIKE '%WHERE%' AS partial FROM pg_indexes WHERE tablename = 'tasks'"
    with psycopg.connect(old_url) as check:
        partial = dict(check.execute(left).fetchall())
    assert partial["idx_tasks_status_worker"]
    assert not [name for name in partial if name.endswith(("_ahead", "_new", "_old"))]


async def test_an_index_that_was_left_unfinished_is_built_again(database_url: str) -> None:
    with psycopg.connect(as_superuser(database_url), autocommit=True) as conn:
        conn.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'public.tasks_failed'::regclass"
        )
    done = await migrate(database_url)
    assert done.notices == ["built indexes without locking their tables: tasks_failed"]
    assert (await migrate(database_url)).notices == []


async def test_a_small_table_is_left_to_the_migration(old_url: str) -> None:  # noqa: F811
    assert (await migrate(old_url)).notices == []


def test_the_statement_that_is_built_ahead() -> None:
    [index] = indexes(
        SqlFile(
            "1", "CREATE UNIQUE INDEX IF NOT EXISTS i ON shiftboss.steps (a,\n    b) WHERE a IS NOT NULL;\n"
        )
    )
    assert (
        index.create
        == "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON shiftboss.steps (a,\n    b) WHERE a IS NOT NULL"
    )
