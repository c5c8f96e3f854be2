"""Guards on cost: no hot call scans the table, and none touches more pages when the table is ten times as large.

At its full size, a million queued and five million finished, it takes some minutes:
SHIFTBOSS_TEST_ROWS=1000000 script/test tests/queue/test_plans.py
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import TEMPLATE, _fresh

pytestmark = [pytest.mark.timeout(1800), pytest.mark.session]  # the seed is large; plans stay in a session

Connection = psycopg.Connection[Any]
BATCH = 100
SMALL, LARGE = 2_500, int(os.environ.get("SHIFTBOSS_TEST_ROWS", "25000"))

SEED = """
INSERT INTO public.tasks (task_type, params, tenant, priority, status, worker_id, attempts, created_at,
    generation_started_at, generation_processed_at)
SELECT 't', '{"n": 1}', CASE n %% 4 WHEN 3 THEN 'other' END, CASE n %% 4 WHEN 2 THEN 10 ELSE 5 END,
    CASE WHEN n <= %(queued)s THEN 'Queued' ELSE 'Complete' END, CASE WHEN n > %(queued)s THEN 'w' END, 0,
    now() - interval '1 day' + n * interval '1 millisecond', CASE WHEN n > %(queued)s THEN now() END,
    CASE WHEN n > %(queued)s THEN now() END
FROM generate_series(1, %(queued)s * 6) n
"""


@pytest.fixture(scope="module")
def sizes(server_url: str) -> Iterator[dict[int, Connection]]:
    """A small and a large database, one task queued to five finished; a busy worker in each."""
    with contextlib.ExitStack() as stack:
        opened = {}
        for size in (SMALL, LARGE):
            url = stack.enter_context(contextlib.contextmanager(_fresh)(server_url, TEMPLATE))
            opened[size] = conn = stack.enter_context(psycopg.connect(url, autocommit=True))
            _without_autovacuum(conn)  # each call is to meet the same statistics, whatever ran before it
            conn.execute(SEED, {"queued": size})
            conn.execute("SELECT FROM shiftboss.claim('w', %s)", [BATCH])
            conn.execute("VACUUM (ANALYZE) public.tasks")
        yield opened


def _without_autovacuum(conn: Connection) -> None:
    tables = conn.execute(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'shiftboss' OR tablename = 'tasks'"
    ).fetchall()
    for [table] in tables:
        conn.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")


def held(conn: Connection) -> dict[str, Any]:
    rows = conn.execute(
        "SELECT id, lease FROM public.tasks WHERE status = 'In Progress' AND worker_id = 'w'"
    ).fetchall()
    return {"ids": [row[0] for row in rows], "leases": [row[1] for row in rows], "count": len(rows)}


def waiting(conn: Connection) -> dict[str, Any]:
    sql = "SELECT id FROM public.tasks WHERE status = 'Queued' ORDER BY created_at LIMIT %s"
    rows = conn.execute(sql, [BATCH]).fetchall()
    return {"ids": [row[0] for row in rows]}


def dead(conn: Connection) -> dict[str, Any]:
    """Some have failed for good."""
    ids = waiting(conn)
    conn.execute(
        "UPDATE public.tasks SET status = 'Failed', dedup_key = id::text WHERE id = ANY (%(ids)s)", ids
    )
    return ids


def limited(conn: Connection) -> dict[str, Any]:
    """The whole task type has a limit and a rate."""
    conn.execute("SELECT shiftboss.set_limit('task_type', 't', 200, NULL, 1000, '1 minute')")
    return {}


def ageing(conn: Connection) -> dict[str, Any]:
    """Priorities age."""
    conn.execute("SELECT shiftboss.set_ageing('1 minute')")
    return {}


def limited_by_key(conn: Connection) -> dict[str, Any]:
    """Each key has a rate of its own, and the key at the front of the queue has used it up."""
    conn.execute("SELECT shiftboss.set_limit('task_type', 't', NULL, NULL, 5, '1 minute', 'key')")
    ids = "SELECT id FROM public.tasks WHERE status = 'Queued' ORDER BY created_at LIMIT 100"
    conn.execute(f"UPDATE public.tasks SET concurrency_key = 'k' WHERE id IN ({ids})")
    return {}


def many_keys(conn: Connection) -> dict[str, Any]:
    """The tasks at the front of the queue have a key each, and many other keys have used up part of their rate."""
    conn.execute("SELECT shiftboss.set_limit('task_type', 't', NULL, 1, 5, '1 minute', 'key')")
    ids = "SELECT id FROM public.tasks WHERE status = 'Queued' ORDER BY created_at LIMIT 100"
    conn.execute(f"UPDATE public.tasks SET concurrency_key = id::text WHERE id IN ({ids})")
    conn.execute(
        "INSERT INTO shiftboss.rate_buckets (kind, name, key, tokens, refilled_at)"
        " SELECT 'task_type', 't', id::text, 3, now() FROM public.tasks WHERE status = 'Queued'"
    )
    return {}


def nothing(conn: Connection) -> dict[str, Any]:
    return {}


def silent(conn: Connection) -> dict[str, Any]:
    """The worker stopped beating long ago."""
    conn.execute("SET LOCAL shiftboss.now = '2199-01-01'")
    return {}


SLEEPERS = """
WITH made AS (INSERT INTO public.tasks (task_type, hold) SELECT 't', 'sleep' FROM generate_series(1, %s) RETURNING id)
INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, attempt, lease, started_at, until, event_key)
SELECT id, k.kind, 's', 1, 'waiting', 1, 1, now(), now() + interval '1 day', k.key
FROM made, (VALUES ('sleep', NULL), ('event', 'other')) k (kind, key)
"""


def asleep(conn: Connection) -> dict[str, Any]:
    """Half as many tasks again sleep; fifty of them are due and wait for the event."""
    count = conn.execute("SELECT count(*) / 12 FROM public.tasks").fetchone()
    conn.execute(SLEEPERS, count)
    due = "SELECT task_id FROM shiftboss.steps WHERE kind = 'sleep' LIMIT 50"
    conn.execute(f"UPDATE shiftboss.steps SET until = now(), event_key = 'k' WHERE task_id IN ({due})")
    return {}


CALLS: dict[str, tuple[str, Callable[[Connection], dict[str, Any]]]] = {
    "enqueue": ("""SELECT * FROM shiftboss.enqueue('[{"task_type": "t"}]')""", nothing),
    "enqueue what is live": (
        """SELECT * FROM shiftboss.enqueue('[{"task_type": "t", "dedup_key": "k"}, {"task_type": "t", "dedup_key": "k"}]')""",
        nothing,
    ),
    "claim": ("SELECT * FROM shiftboss.claim('w', 100)", nothing),
    "claim with ageing": ("SELECT * FROM shiftboss.claim('w', 100)", ageing),
    "claim one with ageing": ("SELECT * FROM shiftboss.claim('w', 1)", ageing),
    "claim under a rate per key": ("SELECT * FROM shiftboss.claim('w', 100)", limited_by_key),
    "claim under limits of many keys": ("SELECT * FROM shiftboss.claim('w', 100)", many_keys),
    "claim one": ("SELECT * FROM shiftboss.claim('w', 1)", nothing),
    "complete": ("SELECT shiftboss.complete(%(ids)s, %(leases)s, array_fill(NULL::jsonb, ARRAY[%(count)s]))", held),
    "fail": ("SELECT shiftboss.fail(%(ids)s, %(leases)s, array_fill('e'::text, ARRAY[%(count)s]))", held),
    "defer": (
        "SELECT shiftboss.defer(%(ids)s, %(leases)s, array_fill(interval '1 s', ARRAY[%(count)s]), NULL)", held),
    "progress": (
        "SELECT shiftboss.progress(%(ids)s, %(leases)s, array_fill(5::smallint, ARRAY[%(count)s]), NULL)", held),
    "extend": ("SELECT shiftboss.extend(%(ids)s, %(leases)s, '1 minute')", held),
    "beat": ("SELECT * FROM shiftboss.beat('w', %(leases)s)", held),
    "store steps": (
        "SELECT shiftboss.store_steps(%(ids)s, %(leases)s, array_fill('s'::text, ARRAY[%(count)s]), "
        "array_fill(1, ARRAY[%(count)s]), array_fill(1::float8, ARRAY[%(count)s]), "
        "array_fill('1'::jsonb, ARRAY[%(count)s]))", held),
    "load steps": ("SELECT * FROM shiftboss.load_steps(%(ids)s)", held),
    "suspend": (
        "SELECT shiftboss.suspend(%(ids)s, %(leases)s, array_fill('[{\"kind\": \"sleep\", \"name\": \"s\", "
        "\"ordinal\": 1, \"seconds\": 60}]'::jsonb, ARRAY[%(count)s]))", held),
    "wake": ("SELECT shiftboss.wake_due(100)", asleep),
    "send an event": ("SELECT shiftboss.send_event('k')", asleep),
    "claim where there is a limit": ("SELECT * FROM shiftboss.claim('w', 100)", limited),
    "assign": ("SELECT * FROM shiftboss.assign(%(ids)s, 'w')", waiting),
    "cancel": ("SELECT * FROM shiftboss.cancel(%(ids)s)", waiting),
    "cancel what runs": ("SELECT * FROM shiftboss.cancel(%(ids)s)", held),
    "retry": ("SELECT shiftboss.retry(%(ids)s)", dead),
    "run now": ("SELECT shiftboss.run_now(%(ids)s)", waiting),
    "watch": ("SELECT * FROM shiftboss.watch(%(ids)s)", waiting),
    "why": ("SELECT w.* FROM unnest(%(ids)s) u (id), shiftboss.why(u.id) w", waiting),
    "expire": ("SELECT shiftboss.expire(100)", nothing),
    "prune": ("SELECT shiftboss.prune('0', 100)", nothing),
    "rescue": ("SELECT * FROM shiftboss.rescue(100)", silent),
    "depths": ("SELECT * FROM shiftboss.queues_within(1000)", nothing),  # what the pages show
    "latency": ("SELECT * FROM shiftboss.latency()", nothing),
}  # fmt: skip


def cost(conn: Connection, call: str) -> tuple[int, int]:
    """Pages that the call touches, all statements inside included, and its sequential scans of `tasks`."""
    statement, prepare = CALLS[call]
    with conn.transaction(force_rollback=True):
        params = prepare(conn)
        scans = _scans(conn)
        [[plan]] = conn.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params).fetchall()
        root = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
        return root["Shared Hit Blocks"] + root["Shared Read Blocks"], _scans(conn) - scans


def _scans(conn: Connection) -> int:
    row = conn.execute(
        "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relid = 'public.tasks'::regclass"
    ).fetchone()
    return int(row[0]) if row else 0


@pytest.mark.parametrize("call", CALLS)
def test_cost_does_not_grow_with_the_table(sizes: dict[int, Connection], call: str) -> None:
    for conn in sizes.values():
        conn.execute("VACUUM (INDEX_CLEANUP ON) public.tasks")  # of what the calls before it left behind
    costs = {size: min(cost(conn, call) for _ in range(3)) for size, conn in sizes.items()}
    assert all(scans == 0 for _, scans in costs.values()), f"{call} reads the whole table"
    small, large = costs[SMALL][0], costs[LARGE][0]
    # One more level or two in each index it touches is all that many times the rows may cost.
    # Ten times the rows may cost a level more in each index; a scan would cost ten times the pages.
    assert large <= small * 2.5 + 40, f"{call} touched {small} pages at {SMALL} queued and {large} at {LARGE}"


@pytest.mark.parametrize("call", ["claim", "depths"])
def test_sleeping_tasks_cost_nothing(sizes: dict[int, Connection], call: str) -> None:
    conn = sizes[SMALL]
    with conn.transaction(force_rollback=True):
        before = min(cost(conn, call) for _ in range(3))
        conn.execute(SLEEPERS, [LARGE])
        after = min(cost(conn, call) for _ in range(3))
    assert after[1] == 0
    # Another level in each index it uses, as above; reading the tasks that sleep would cost thousands of pages.
    assert after[0] <= before[0] * 2.5 + 40, (before, after)


FILLED = """
INSERT INTO shiftboss.past_attempts (task_id, lease, attempt, worker_id, started_at, ended_at, outcome)
SELECT id, nextval('shiftboss.past_lease'), 1, 'w', now(), now(), 'complete' FROM public.tasks;
INSERT INTO shiftboss.dependencies (child_id, parent_id)
SELECT id, lag(id) OVER () FROM public.tasks OFFSET 1;
"""


@pytest.fixture(scope="module")
def emptied(server_url: str) -> Iterator[Connection]:
    """A queue that was analysed right after a large transaction had been rolled back, and has filled since."""
    with (
        contextlib.contextmanager(_fresh)(server_url, TEMPLATE) as url,
        psycopg.connect(url, autocommit=True) as conn,
    ):
        conn.execute("CREATE SEQUENCE shiftboss.past_lease")
        _without_autovacuum(conn)
        with conn.transaction(force_rollback=True):
            conn.execute(SEED, {"queued": SMALL})
            asleep(conn)
            conn.execute(FILLED)
        conn.execute("ANALYZE")
        conn.execute(SEED, {"queued": SMALL})
        conn.execute("SELECT FROM shiftboss.claim('w', %s)", [BATCH])
        yield conn


@pytest.mark.parametrize("call", CALLS)
def test_statistics_of_an_emptied_table_mislead_nobody(emptied: Connection, call: str) -> None:
    pages, scans = cost(emptied, call)
    assert scans == 0, f"{call} reads the whole table"
    assert pages < 150 * BATCH, (
        f"{call} touched {pages} pages"
    )  # a scan per task would take some hundred times BATCH


def assert_alike_in_company(conn: Connection, calls: tuple[str, ...], company: int) -> None:
    """The calls touch as many pages while another worker runs this many tasks."""
    alone = {call: min(cost(conn, call) for _ in range(2))[0] for call in calls}
    conn.execute("SELECT FROM shiftboss.claim('other', %s)", [company])
    for call in calls:
        pages = min(cost(conn, call) for _ in range(2))[0]
        assert pages <= alone[call] * 1.5 + 100, f"{call} touched {alone[call]} pages, and {pages} in company"


def test_what_others_run_is_not_looked_at(database_url: str) -> None:
    """Nobody worked when the statistics were taken; then one worker runs ten tasks, and another nearly all the rest."""
    calls = ("complete", "fail", "defer", "progress", "extend")
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("ALTER TABLE public.tasks SET (autovacuum_enabled = false)")
        conn.execute(SEED, {"queued": SMALL})
        conn.execute("ANALYZE public.tasks")
        conn.execute("SELECT FROM shiftboss.claim('w', 10)")
        assert_alike_in_company(conn, calls, SMALL - 100)


def test_limits_per_key_do_not_look_at_what_others_run(database_url: str) -> None:
    """As above, and every task has a key of its own. A scan of all running tasks for each key would cost three times the pages and more."""
    calls = ("claim one", "complete", "fail", "defer")
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("ALTER TABLE public.tasks SET (autovacuum_enabled = false)")
        conn.execute(SEED, {"queued": SMALL})
        conn.execute("UPDATE public.tasks SET concurrency_key = id::text WHERE status = 'Queued'")
        conn.execute("SELECT shiftboss.set_limit('task_type', 't', NULL, 1)")
        conn.execute("VACUUM (ANALYZE) public.tasks")
        conn.execute("SELECT FROM shiftboss.claim('w', 500)")
        assert_alike_in_company(conn, calls, SMALL - 1000)


@pytest.mark.parametrize("call", CALLS)
def test_a_plan_made_while_the_table_was_small_serves_it_when_it_is_large(
    database_url: str, call: str
) -> None:
    """A session keeps its plans until the table is analysed again, which may be long after it has grown."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("ALTER TABLE public.tasks SET (autovacuum_enabled = false)")
        conn.execute(SEED, {"queued": 10})
        conn.execute("SELECT FROM shiftboss.claim('w', 5)")
        for _ in range(8):  # PostgreSQL turns to generic plans after five
            cost(conn, call)
        conn.execute(SEED, {"queued": SMALL})
        conn.execute("SELECT FROM shiftboss.claim('w', %s)", [BATCH])
        pages, scans = cost(conn, call)
        assert scans == 0, f"{call} reads the whole table"
        assert pages < 80 * BATCH, f"{call} touched {pages} pages"


def test_claims_skip_dead_rows_even_if_the_queue_was_empty_when_it_was_analysed(database_url: str) -> None:
    """A reader's open transaction keeps the dead rows."""
    with psycopg.connect(database_url) as reader, psycopg.connect(database_url, autocommit=True) as conn:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT FROM public.tasks")
        _without_autovacuum(conn)
        conn.execute("INSERT INTO public.tasks (task_type) SELECT 't' FROM generate_series(1, %s)", [LARGE])
        conn.execute("SELECT FROM shiftboss.claim('w', %s)", [LARGE])
        conn.execute("VACUUM (ANALYZE) public.tasks")
        conn.execute("INSERT INTO public.tasks (task_type) SELECT 't' FROM generate_series(1, 10)")
        conn.execute("SELECT shiftboss.find_lanes()")
        marks = "SELECT array_agg(lane), array_agg((SELECT max(created_at)::text FROM public.tasks)) FROM shiftboss.lanes"
        given = conn.execute(marks).fetchone()
        assert given is not None
        for call in ("waiting(10, %s, %s::timestamptz[])", "claim('w', 10, %s, %s::timestamptz[])"):
            explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM shiftboss.{call}"
            [[plan]] = conn.execute(explain, given).fetchall()
            pages = plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"]
            assert pages < 700, f"{call} touched {pages} pages"


@pytest.mark.parametrize("statement", ["SELECT shiftboss.fold_errors()", "SELECT FROM shiftboss.errors"])
def test_failures_are_read_by_address_and_at_most_20_000_at_a_time(database_url: str, statement: str) -> None:
    """One scan collects their addresses. Another one would compare every failure with all these addresses."""
    read = "SELECT seq_scan, seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'shiftboss.error_tallies'::regclass"
    with psycopg.connect(database_url, autocommit=True) as conn, conn.transaction():
        conn.execute(
            "INSERT INTO shiftboss.error_tallies (error_group, task_id, outcome, at)"
            " SELECT n % 20, gen_random_uuid(), 'lost', now() FROM generate_series(1, 25000) n"
        )
        assert conn.execute(read).fetchone() == (0, 0)
        conn.execute(statement)
        assert conn.execute(read).fetchone() == (1, 20_000)
