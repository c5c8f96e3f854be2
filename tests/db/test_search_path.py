"""No function of ours resolves a name by the caller's search_path, and only the owner moves the clock."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.types.json import Jsonb

from shiftboss.db.migrate import migrate

Connection = psycopg.Connection[Any]

# Functions without a search_path of their own: PostgreSQL inlines them, which a SET clause would prevent, or they run for
# every row. Each qualifies every name and operator in its body.
QUALIFIED = {"shiftboss.now", "shiftboss.limits_of", "shiftboss.pauses_of"}

OURS = """
SELECT p.pronamespace::regnamespace || '.' || p.proname FROM pg_proc p
WHERE (p.pronamespace::regnamespace::text IN ('shiftboss', 'ai', 'journal')
       OR p.pronamespace = 'public'::regnamespace AND p.proname LIKE 'func\\_%')
  AND p.prokind <> 'a'
"""

# A copy of every function and operator that PostgreSQL has, each of which raises, and tables with our names.
HOSTILE = """
CREATE SCHEMA hostile;
DO $do$
DECLARE
    f record;
    v_made int := 0;
BEGIN
    FOR f IN SELECT DISTINCT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, p.proretset,
                 format_type(p.prorettype, NULL) AS result
             FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proargmodes IS NULL AND p.prokind IN ('f', 'a')
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS %L', f.proname, f.arguments,
                CASE WHEN f.proretset THEN 'SETOF' ELSE '' END, f.result, format('BEGIN RAISE EXCEPTION %L; END', 'hijacked by ' || f.proname));
            v_made := v_made + 1;
        EXCEPTION WHEN OTHERS THEN NULL;  -- pseudo-types that only C functions take
        END;
    END LOOP;
    FOR f IN SELECT o.oprname, o.oprleft::regtype AS l, o.oprright::regtype AS r, o.oprresult::regtype AS result, o.oid
             FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft <> 0
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION hostile.operator_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', f.oid, f.l, f.r,
                f.result, format('BEGIN RAISE EXCEPTION %L; END', 'hijacked by operator ' || f.oprname));
            EXECUTE format('CREATE OPERATOR hostile.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = hostile.operator_%s)',
                f.oprname, f.l, f.r, f.oid);
            v_made := v_made + 1;
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
    ASSERT v_made > 2000, format('only %s copies were made', v_made);
    FOR f IN SELECT c.relname FROM pg_class c WHERE c.relkind IN ('r', 'v')
             AND c.relnamespace IN ('public'::regnamespace, 'shiftboss'::regnamespace, 'pg_catalog'::regnamespace) LOOP
        EXECUTE format('CREATE TABLE IF NOT EXISTS hostile.%I (nothing int)', f.relname);
    END LOOP;
END $do$
"""  # fmt: skip


@pytest.fixture
def hostile(database_url: str) -> Any:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(HOSTILE)
        conn.execute("SET search_path = hostile, pg_catalog, public")
        yield conn


def enqueue(conn: Connection, *tasks: dict[str, Any]) -> list[uuid.UUID]:
    return [row[0] for row in conn.execute("SELECT id FROM shiftboss.enqueue(%s)", [Jsonb(tasks)])]


def claim(conn: Connection, count: int) -> tuple[list[uuid.UUID], list[int]]:
    rows = conn.execute("SELECT id, lease FROM shiftboss.claim('w', %s::int)", [count]).fetchall()
    return [row[0] for row in rows], [row[1] for row in rows]


def test_every_function_sets_its_search_path(database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        bare = conn.execute(
            f"{OURS} AND p.prosqlbody IS NULL"  # whatever is bound when it is created needs no path
            " AND NOT coalesce(p.proconfig, '{}') @> '{\"search_path=pg_catalog, pg_temp\"}'"
        ).fetchall()
    assert {name for (name,) in bare} == QUALIFIED


def test_whoever_forbids_plans_does_not_compile_them(database_url: str) -> None:
    """A plan that had no other choice costs ten thousand million, at which PostgreSQL compiles it, for 250 ms."""
    with psycopg.connect(database_url) as conn:
        steered = conn.execute(f"{OURS} AND p.proconfig::text LIKE '%enable\\_%'").fetchall()
        compiled = conn.execute(
            f"{OURS} AND p.proconfig::text LIKE '%enable\\_%' AND NOT p.proconfig @> '{{jit=off}}'"
        ).fetchall()
    assert ("shiftboss.claim",) in steered
    assert compiled == []


def test_the_hostile_path_is_hostile(hostile: Connection) -> None:
    for statement in ("SELECT lower('A'::text)", "SELECT 'a'::text || 'b'::text", "SELECT now()"):
        with pytest.raises(psycopg.errors.RaiseException, match="hijacked"):
            hostile.execute(statement)
    with pytest.raises(psycopg.errors.UndefinedColumn):
        hostile.execute("SELECT id FROM tasks")


def test_the_queue_works_on_a_hostile_path(hostile: Connection) -> None:
    first = enqueue(
        hostile,
        {"task_type": "a", "dedup_key": "k", "requires": {"gpu": False}, "origin": "user_requested"},
        {"task_type": "a", "concurrency_key": "c", "tenant": "t", "backoff": "1 s"},
    )
    child, lone = enqueue(hostile, {"task_type": "a", "depends_on": [str(first[0])]}, {"task_type": "b"})
    hostile.execute("INSERT INTO public.tasks (task_type, params) VALUES ('plain', '{}')")
    hostile.execute("SELECT shiftboss.set_limit('task_type', 'a', 100, 1, 1000, '1 minute')")
    ids, leases = claim(hostile, 10)
    assert set(ids) >= {*first, lone}
    assert child not in ids
    hostile.execute("SELECT * FROM shiftboss.beat('w', %s::bigint[])", [leases])
    hostile.execute(
        "SELECT shiftboss.progress(%s::uuid[], %s::bigint[], '{50}', NULL)", [ids[:1], leases[:1]]
    )
    done = hostile.execute(
        "SELECT shiftboss.complete(%s::uuid[], %s::bigint[], ARRAY[NULL, NULL]::jsonb[])",
        [ids[:2], leases[:2]],
    ).fetchone()
    assert done == ([],)
    hostile.execute("SELECT shiftboss.fail(%s::uuid[], %s::bigint[], '{e,e}')", [ids[2:], leases[2:]])
    waiting = enqueue(hostile, {"task_type": "z"}, {"task_type": "z"})
    hostile.execute("SELECT * FROM shiftboss.cancel(%s::uuid[])", [waiting[:1]])
    hostile.execute("SELECT shiftboss.retry(%s::uuid[])", [waiting[:1]])
    reasons = hostile.execute("SELECT reason FROM shiftboss.why(%s)", [waiting[1]]).fetchall()
    assert reasons
    claim(hostile, 10)
    hostile.execute("SET shiftboss.now = '2199-01-01 00:00+00'")
    lost = hostile.execute("SELECT * FROM shiftboss.rescue(100)").fetchall()
    assert lost
    hostile.execute("SELECT shiftboss.expire(100), shiftboss.prune('1 s', 100), shiftboss.tidy()")


def test_the_documented_functions_and_views_work_on_a_hostile_path(hostile: Connection) -> None:
    hostile.execute("INSERT INTO public.tasks (task_type) VALUES ('one'), ('two')")
    hostile.execute("SELECT public.func_update_worker_heartbeat('w', 100, 50)")
    taken = [
        hostile.execute("SELECT id FROM public.func_claim_available_task('w')").fetchone() for _ in range(2)
    ]
    assert taken[0] is not None
    assert taken[1] is not None
    hostile.execute("SELECT public.func_mark_task_complete(%s, '{}')", taken[0])
    hostile.execute("SELECT public.func_mark_task_failed(%s, 'no')", taken[1])
    hostile.execute("SELECT public.func_reset_orphaned_tasks('{w}')")
    for view in (
        "orchestrator_status", "active_workers_health", "recent_task_activity", "worker_performance",
        "task_queue_analysis",
    ):  # fmt: skip
        assert hostile.execute(f"SELECT * FROM public.{view}").fetchall()


def test_migrating_on_a_hostile_path_changes_nothing(database_url: str) -> None:
    """A function that is bound when it is created is bound to PostgreSQL's own operators."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(HOSTILE)
        conn.execute(f"ALTER DATABASE {conn.info.dbname} SET search_path = hostile, pg_catalog, public")
    asyncio.run(migrate(database_url))
    with psycopg.connect(database_url, autocommit=True) as conn:
        enqueue(conn, {"task_type": "a"})
        assert len(claim(conn, 1)[0]) == 1


def test_only_the_owner_moves_the_clock(database_url: str, login: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(f"GRANT USAGE ON SCHEMA shiftboss TO {urlsplit(login).username}")
        owner.execute("SET shiftboss.now = '2001-01-01 00:00+00'")
        assert owner.execute("SELECT extract(year FROM shiftboss.now())::int").fetchone() == (2001,)
    with psycopg.connect(login, autocommit=True) as worker:
        worker.execute("SET shiftboss.now = '2001-01-01 00:00+00'")
        row = worker.execute("SELECT clock_timestamp() - shiftboss.now() < interval '1 s'").fetchone()
        assert row == (True,)
