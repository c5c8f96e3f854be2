"""A database of an earlier version, with rows of every kind, is migrated: nothing is lost, and the queue works on."""

from __future__ import annotations

import gzip
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.migrate import is_current, migrate
from shiftboss.model.task import NewTask
from tests.conftest import as_superuser
from tests.servers import direct

DUMPS = sorted(Path(__file__).parent.glob("*.sql.gz"))
TABLES = """
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname IN ('public', 'shiftboss', 'ai', 'journal') AND tablename <> 'migrations'
"""
DOCUMENTED = (
    "id, status, task_type, params, attempts, worker_id, error_message, result_data, created_at, queue"
)


@pytest.fixture(params=DUMPS, ids=lambda path: path.name.removesuffix(".sql.gz"))
def old_url(request: pytest.FixtureRequest, empty_database_url: str) -> str:
    """The dump restored, as the database of the ordinary role."""
    restorer, owner = f"restorer_{uuid.uuid4().hex[:8]}", urlsplit(empty_database_url).username
    with psycopg.connect(as_superuser(empty_database_url), autocommit=True) as conn:
        # Dumps of old versions hold functions that only a superuser can create.
        conn.execute(f"CREATE ROLE {restorer} SUPERUSER; SET ROLE {restorer}")
        conn.execute(gzip.decompress(request.param.read_bytes()).decode())
        conn.execute(f"RESET ROLE; REASSIGN OWNED BY {restorer} TO {owner}; DROP ROLE {restorer}")
    return direct(empty_database_url)


def rows(url: str) -> dict[str, int]:
    """How many rows each table has."""
    with psycopg.connect(url, autocommit=True) as conn:
        names = [name for (name,) in conn.execute(TABLES)]
        return {name: _one(conn, f"SELECT count(*) FROM {name}") for name in names}


def tasks(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'")
        return conn.execute(f"SELECT {DOCUMENTED} FROM public.tasks ORDER BY id").fetchall()


def _one(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query).fetchone()  # type: ignore[arg-type]
    return row and row[0]


async def test_every_row_survives(old_url: str) -> None:
    counted, known = rows(old_url), tasks(old_url)
    assert {row[1] for row in known} == {"Queued", "In Progress", "Complete", "Failed", "Cancelled"}
    empty = {"shiftboss.lane_reasons", "shiftboss.login_codes", "shiftboss.coordinators", "shiftboss.ticks"}
    assert {name for name, count in counted.items() if name.startswith("shiftboss.") and not count} >= empty
    await migrate(old_url)
    assert await is_current(old_url)
    after = rows(old_url)
    assert {name: after.get(name) for name in counted} == counted
    assert tasks(old_url) == known


async def test_the_queue_works_on(old_url: str) -> None:
    await migrate(old_url)
    async with await Database.open(old_url) as db:
        running = await db.fetch("SELECT id, lease FROM tasks WHERE task_type = 'running'")
        assert await db.fetch(
            "SELECT shiftboss.complete(%s, %s, ARRAY['1']::jsonb[]) AS stale",
            [[running[0]["id"]], [running[0]["lease"]]],
        ) == [{"stale": []}]
        await db.tasks.enqueue([NewTask(task_type="new")])
        held = await db.tasks.claim("w2", 20)
        names = {task.task_type for task in held}
        assert names >= {"new", "retried", "parent", "limited"}
        assert names.isdisjoint({"later", "child", "plain"})
        parent = next(task for task in held if task.task_type == "parent")
        await db.fetch("SELECT shiftboss.complete(%s, %s, NULL)", [[parent.id], [parent.lease]])
        assert [task.task_type for task in await db.tasks.claim("w2", 20)] == ["child"]


async def test_vectorizers_follow_on(old_url: str) -> None:
    await migrate(old_url)
    async with await Database.open(old_url) as db:
        [vectorizer] = await db.fetch("SELECT id FROM ai.vectorizer")
        before = await db.vectorizers.pending(vectorizer["id"])
        await db.execute("INSERT INTO public.notes VALUES (6, 'one more')")
        assert await db.vectorizers.pending(vectorizer["id"]) == before + 1


# What workers and coordinators of an earlier version call while the database is already new.
CALLED = [
    "announce_coordinator",
    "assign",
    "assign_many",
    "beat",
    "beats",
    "cancelled",
    "claim",
    "complete",
    "count_work",
    "defer",
    "enqueue",
    "enroll",
    "extend",
    "fail",
    "foreign_leases",
    "leave",
    "note",
    "progress",
    "register",
    "register_worker",
    "remove_worker",
    "report",
    "update_heartbeat",
    "waiting",
    "withdraw_coordinator",
]
NAMED = {"assign_many", "waiting"}
SIGNATURES = """
SELECT p.proname, p.proargtypes::regtype[]::text[] AS takes, coalesce(
    (SELECT array_agg(n || ' ' || t::regtype ORDER BY place)
     FROM unnest(p.proargnames, p.proallargtypes, p.proargmodes) WITH ORDINALITY a (n, t, mode, place)
     WHERE mode = 't'),
    (SELECT array_agg(attname || ' ' || atttypid::regtype ORDER BY attnum) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
     WHERE c.reltype = p.prorettype AND c.relkind = 'c' AND attnum > 0),
    ARRAY[p.prorettype::regtype::text]) AS gives
FROM pg_proc p WHERE p.pronamespace = 'shiftboss'::regnamespace AND p.proname = ANY (%s)
"""


def signatures(url: str) -> dict[str, tuple[list[str], list[str]]]:
    with psycopg.connect(url, autocommit=True) as conn:
        rows = conn.execute(SIGNATURES, [CALLED]).fetchall()
    assert len(rows) == len({name for name, *_ in rows}), "a call of an overloaded function is ambiguous"
    return {name: (takes, gives) for name, takes, gives in rows}


async def test_workers_of_that_version_can_go_on(old_url: str) -> None:
    before = signatures(old_url)
    assert sorted(before) == CALLED
    await migrate(old_url)
    for name, (takes, gives) in signatures(old_url).items():
        took, gave = before[name]
        # More parameters have defaults. More columns are fine where the caller names those that it wants.
        kept = [column for column in gives if column in gave] if name in NAMED else gives
        assert (name, takes[: len(took)], kept) == (name, took, gave)


async def test_the_history_of_an_old_database_is_counted(old_url: str) -> None:
    await migrate(old_url)
    with psycopg.connect(old_url, autocommit=True) as conn:
        shown = conn.execute("SELECT completed_tasks, failed_tasks, cancelled_tasks FROM orchestrator_status")
        assert shown.fetchall() == [
            tuple(
                _one(conn, f"SELECT count(*) FROM tasks WHERE status = '{status}'")
                for status in ("Complete", "Failed", "Cancelled")
            )
        ]
        assert _one(conn, "SELECT count(*) FROM shiftboss.settings WHERE key = 'history'") == 0
