"""Migration of a database that already has older tables with rows, with only the documented columns."""

from __future__ import annotations

import psycopg

from shiftboss.db.migrate import is_current, migrate

OLD = """
CREATE TABLE tasks (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), status text, task_type text, params jsonb, attempts int,
    worker_id text, generation_started_at timestamptz, generation_processed_at timestamptz,
    error_message text, result_data jsonb, created_at timestamptz DEFAULT now(), updated_at timestamptz);
CREATE TABLE workers (
    id text PRIMARY KEY, instance_type text, status text, last_heartbeat timestamptz, metadata jsonb,
    created_at timestamptz DEFAULT now());
CREATE INDEX idx_workers_status_heartbeat ON workers (status, last_heartbeat);
INSERT INTO workers (id, instance_type, status, metadata) VALUES
    ('gpu-1', 'external', 'active', '{"rack": 7}');
INSERT INTO tasks (task_type, status, params, attempts, created_at) VALUES
    ('render', 'Queued', '{"n": 1}', NULL, now() - interval '1 day'),
    ('render', 'Complete', NULL, 1, now() - interval '2 days');
INSERT INTO tasks (task_type, status, params, worker_id, generation_started_at) VALUES
    ('render', 'In Progress', '{"n": 2}', 'gpu-1', now());
"""


async def test_old_rows_are_kept_and_work_on(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute(OLD)
        await migrate(empty_database_url)
        assert conn.execute("SELECT status, count(*) FROM tasks GROUP BY 1 ORDER BY 1").fetchall() == [
            ("Complete", 1),
            ("In Progress", 1),
            ("Queued", 1),
        ]
        claimed = conn.execute("SELECT id, task_data FROM func_claim_available_task('gpu-1')").fetchone()
        assert claimed is not None
        assert claimed[1] == {"n": 1}
        conn.execute("SELECT func_mark_task_complete(%s, NULL)", [claimed[0]])
        done = conn.execute("SELECT status, worker_id FROM tasks WHERE id = %s", [claimed[0]]).fetchone()
        assert done == ("Complete", "gpu-1")
        assert conn.execute("SELECT metadata->>'rack' FROM workers").fetchall() == [("7",)]
    assert (await migrate(empty_database_url)).applied == []
    assert await is_current(empty_database_url)


async def test_a_plain_insert_of_an_old_client_still_runs(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute(OLD)
        conn.execute("DELETE FROM tasks")
        await migrate(empty_database_url)
        conn.execute("INSERT INTO tasks (task_type, params) VALUES ('render', '{}')")
        claimed = conn.execute("SELECT task_type FROM func_claim_available_task('gpu-1')").fetchall()
    assert claimed == [("render",)]


UNUSABLE = """
INSERT INTO tasks (id, task_type, status, worker_id, params) VALUES
    ('00000000-0000-0000-0000-000000000001', '', 'Queued', NULL, '{}'),
    ('00000000-0000-0000-0000-000000000002', '', 'In Progress', 'gpu-1', '{}'),
    ('00000000-0000-0000-0000-000000000003', 'render', 'Waiting', NULL, '{}'),
    ('00000000-0000-0000-0000-000000000004', 'render', NULL, NULL, '{}'),
    ('00000000-0000-0000-0000-000000000005', NULL, 'Queued', NULL, '{}');
"""


async def test_rows_that_cannot_run_stay_and_block_nothing(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute(OLD)
        conn.execute(UNUSABLE)
        done = await migrate(empty_database_url)
        assert any("5 tasks cannot run" in notice for notice in done.notices)
        assert any("5 tasks cannot run" in notice for notice in (await migrate(empty_database_url)).notices)
        assert conn.execute(
            "SELECT right(id::text, 1), status, task_type FROM shiftboss.unusable_tasks ORDER BY 1"
        ).fetchall() == [
            ("1", "Queued", ""), ("2", "In Progress", ""), ("3", "Waiting", "render"), ("4", "Unknown", "render"),
            ("5", "Queued", ""),
        ]  # fmt: skip
        for _ in range(2):  # the render task that can run, and then nothing
            conn.execute("SELECT * FROM func_claim_available_task('gpu-1')")
        assert conn.execute("SELECT * FROM func_claim_available_task('gpu-1')").fetchall() == []
        everything = "ARRAY(SELECT id FROM tasks)"
        for call in (
            "func_reset_orphaned_tasks('{gpu-1}')",
            "shiftboss.rescue()",
            f"shiftboss.watch({everything})",
            "shiftboss.tidy()",
            "shiftboss.prune('0')",
        ):
            conn.execute(f"SELECT * FROM {call}")
        for (id,) in conn.execute("SELECT id FROM shiftboss.unusable_tasks").fetchall():
            assert conn.execute("SELECT reason FROM shiftboss.why(%s)", [id]).fetchall() == [("unusable",)]
        conn.execute(f"SELECT * FROM shiftboss.cancel({everything})")
        assert len(conn.execute("SELECT id FROM shiftboss.unusable_tasks").fetchall()) == 2


async def test_an_unusable_row_that_gets_a_type_runs(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as conn:
        conn.execute(OLD)
        conn.execute("DELETE FROM tasks")
        conn.execute(UNUSABLE)
        await migrate(empty_database_url)
        conn.execute("UPDATE tasks SET task_type = 'render' WHERE task_type = '' AND status = 'Queued'")
        for _ in range(2):
            assert len(conn.execute("SELECT id FROM func_claim_available_task('gpu-1')").fetchall()) == 1
        assert len(conn.execute("SELECT id FROM shiftboss.unusable_tasks").fetchall()) == 3
