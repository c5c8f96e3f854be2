"""Finished tasks: what the views say about them is true whichever way they ended, costs the same however many there are, and
old ones leave as fast as they come."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.leader.pruner import BatchSize, Pruner
from shiftboss.model.task import NewTask
from tests.conftest import admin, as_superuser

VIEWS = (
    "orchestrator_status",
    "active_workers_health",
    "recent_task_activity LIMIT 100",
    "worker_performance",
    "task_queue_analysis",
)
FINISHED = ("Complete", "Failed", "Cancelled")
Step = Callable[[Database], Awaitable[Any]]


async def complete(db: Database) -> None:
    held = await db.tasks.claim("w1", 3)
    await db.tasks.complete([(task.id, task.lease) for task in held], [None] * len(held))


async def fail(db: Database) -> None:
    held = await db.tasks.claim("w2", 2)
    await db.tasks.fail([(task.id, task.lease) for task in held], ["boom"] * len(held))


async def by_the_documented_functions(db: Database) -> None:
    [done, failed] = [await db.fetch("SELECT id FROM func_claim_available_task('ext')") for _ in range(2)]
    for row in done:
        await db.execute("SELECT func_mark_task_complete(%s)", [row["id"]])
    for row in failed:
        await db.execute("SELECT func_mark_task_failed(%s, 'boom')", [row["id"]])


async def by_plain_update(db: Database) -> None:
    for status in ("Complete", "Failed"):
        for row in await db.fetch("SELECT id FROM func_claim_available_task('sql')"):
            await db.execute(
                "UPDATE tasks SET status = %s, generation_processed_at = now() WHERE id = %s",
                [status, row["id"]],
            )


async def ids(db: Database, *statuses: str, count: int = 2) -> list[Any]:
    rows = await db.fetch(
        "SELECT id FROM tasks WHERE status = ANY (%s) ORDER BY random() LIMIT %s", [list(statuses), count]
    )
    return [row["id"] for row in rows]


async def cancel(db: Database) -> None:
    await db.tasks.cancel(await ids(db, "Queued"))


async def retry(db: Database) -> None:
    await db.tasks.retry(await ids(db, "Failed", "Cancelled"))


async def undo_by_hand(db: Database) -> None:
    await db.execute("UPDATE tasks SET status = 'Queued' WHERE id = ANY (%s)", [await ids(db, *FINISHED)])


async def delete_by_hand(db: Database) -> None:
    await db.execute("DELETE FROM tasks WHERE id = ANY (%s)", [await ids(db, "Queued", *FINISHED, count=3)])


async def restore(db: Database) -> None:
    await db.execute(
        "INSERT INTO tasks (task_type, status, generation_processed_at) VALUES ('t', 'Complete', now()), ('t', 'Failed', NULL)"
    )


async def prune(db: Database) -> None:
    await db.tasks.prune(timedelta(0), 2)


async def lose(db: Database) -> None:
    await db.tasks.claim("w3", 1)
    await db.execute("SELECT shiftboss.lose_worker('{w3}')")


async def enqueue(db: Database, max_attempts: int = 2) -> None:
    await db.tasks.enqueue([NewTask(task_type="t", max_attempts=max_attempts) for _ in range(8)])


async def fold(db: Database) -> None:
    await Pruner(db).fold()


STEPS: list[Step] = [
    complete, fail, by_the_documented_functions, by_plain_update, cancel, retry, undo_by_hand, delete_by_hand,
    restore, prune, lose, enqueue, enqueue, fold,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
async def test_the_counts_are_those_of_the_table_after_anything(db: Database, seed: int) -> None:
    dice = random.Random(seed)
    await enqueue(db)
    for _ in range(40):
        step = dice.choice(STEPS)
        await step(db)
        status = await db.fetch_one(
            "SELECT completed_tasks, failed_tasks, cancelled_tasks FROM orchestrator_status"
        )
        rows = await db.fetch("SELECT status, count(*) AS n FROM tasks GROUP BY status")
        true = {row["status"]: row["n"] for row in rows}
        assert status is not None
        assert list(status.values()) == [true.get(word, 0) for word in FINISHED], step.__name__
    before = await db.fetch("SELECT status, in_table FROM shiftboss.finished_totals ORDER BY status")
    await db.execute("SELECT shiftboss.retally()")
    after = await db.fetch("SELECT status, in_table FROM shiftboss.finished_totals ORDER BY status")
    assert [row for row in before if row["in_table"]] == [row for row in after if row["in_table"]]


async def figures(db: Database) -> list[Any]:
    """What the views say about finished tasks."""
    return [
        await db.fetch("SELECT completed_tasks, failed_tasks, cancelled_tasks FROM orchestrator_status"),
        await db.fetch(
            "SELECT worker_id, completed_tasks, failed_tasks, avg_processing_time_seconds FROM worker_performance"
            " ORDER BY 1"
        ),
        await db.fetch("SELECT * FROM task_queue_analysis ORDER BY task_type"),
    ]


async def test_counting_again_changes_nothing_that_is_right(db: Database) -> None:
    await enqueue(db, max_attempts=1)
    for step in (complete, fold, fail, lose, cancel):
        await step(db)
    before = await figures(db)
    for _ in range(2):
        await db.execute("SELECT shiftboss.retally()")
        assert await figures(db) == before


async def test_counting_history_keeps_no_writer_waiting(db: Database) -> None:
    """What ends before, during and after the count is counted once."""
    await enqueue(db)
    await db.execute("ALTER TABLE tasks DISABLE TRIGGER USER")
    await db.execute(
        "INSERT INTO tasks (task_type, status, worker_id, last_worker_id, generation_processed_at)"
        " SELECT 't', 'Complete', 'old', 'old', now() FROM generate_series(1, 10)"
    )
    await db.execute("ALTER TABLE tasks ENABLE TRIGGER USER")
    await db.execute("INSERT INTO shiftboss.settings VALUES ('history', 'uncounted')")
    await complete(db)
    async with db.transaction() as conn:
        await conn.execute("SELECT shiftboss.count_history()")
        async with asyncio.timeout(5):
            await complete(db)
            await db.execute(
                "DELETE FROM tasks WHERE id = (SELECT id FROM tasks WHERE worker_id = 'old' LIMIT 1)"
            )
    await db.execute("SELECT shiftboss.count_history()")
    [status] = await db.fetch("SELECT completed_tasks FROM orchestrator_status")
    assert status["completed_tasks"] == 15
    rows = await db.fetch("SELECT worker_id, sum(completed) AS n FROM shiftboss.worker_totals GROUP BY 1")
    assert [(row["worker_id"], row["n"]) for row in rows if row["worker_id"] == "old"] == [("old", 10)]


@pytest.mark.parametrize("folded", [False, True])
async def test_every_way_to_finish_counts_for_its_worker(db: Database, folded: bool) -> None:
    await enqueue(db, max_attempts=9)
    for step in (complete, fail, by_the_documented_functions, by_plain_update, lose):
        await step(db)
        if folded:
            await fold(db)
    rows = await db.fetch("SELECT * FROM worker_performance")
    counted = {row["worker_id"]: (row["completed_tasks"], row["failed_tasks"]) for row in rows}
    assert counted == {"w1": (3, 0), "w2": (0, 2), "ext": (1, 1), "sql": (1, 1), "w3": (0, 1)}
    [analysis] = await db.fetch("SELECT * FROM task_queue_analysis")
    assert analysis["completed_count"] == 5
    assert analysis["failed_count"] == 1, "the others have an attempt left"


async def test_figures_outlive_the_rows(db: Database) -> None:
    await enqueue(db)
    await complete(db)
    assert await db.tasks.prune(timedelta(0), 100) == 3
    [worker] = await db.fetch("SELECT * FROM worker_performance")
    assert worker["completed_tasks"] == 3
    status = await db.fetch_one("SELECT completed_tasks FROM orchestrator_status")
    assert status == {"completed_tasks": 0}
    await db.execute("TRUNCATE tasks")
    assert await db.fetch_one("SELECT failed_tasks FROM orchestrator_status") == {"failed_tasks": 0}


@pytest.mark.parametrize("folded", [False, True])
async def test_times_are_those_of_the_tasks(db: Database, folded: bool) -> None:
    await db.execute(
        "INSERT INTO tasks (task_type, status, generation_started_at, generation_processed_at) SELECT 't', 'Complete',"
        " shiftboss.now() - n * interval '1 s', shiftboss.now() FROM generate_series(1, 100) n"
    )
    if folded:
        await fold(db)
    [row] = await db.fetch("SELECT * FROM task_queue_analysis")
    times = {key: float(row[f"{key}_processing_time_seconds"]) for key in ("avg", "min", "max", "p50", "p95")}
    assert times == pytest.approx({"avg": 50.5, "min": 1, "max": 100, "p50": 50.5, "p95": 95.05}, abs=0.6)


async def test_whoever_may_change_a_task_needs_no_right_on_the_figures(
    db: Database, database_url: str
) -> None:
    role = f"plain_{random.randrange(10**9)}"
    admin(database_url, f"CREATE ROLE {role}")
    await db.execute(f"GRANT INSERT, SELECT, UPDATE, DELETE ON tasks TO {role}")
    await db.execute(f"GRANT USAGE ON SCHEMA shiftboss TO {role}")
    try:
        async with await psycopg.AsyncConnection.connect(as_superuser(database_url), autocommit=True) as conn:
            await conn.execute(f"SET ROLE {role}")
            await conn.execute("INSERT INTO tasks (task_type, status) VALUES ('t', 'Complete')")
            await conn.execute("UPDATE tasks SET status = 'Failed'")
            await conn.execute("DELETE FROM tasks")
    finally:
        async with await psycopg.AsyncConnection.connect(as_superuser(database_url), autocommit=True) as conn:
            await conn.execute(f"DROP OWNED BY {role}")
        admin(database_url, f"DROP ROLE {role}")
    assert await db.fetch_one("SELECT failed_tasks FROM orchestrator_status") == {"failed_tasks": 0}


async def seed(db: Database, finished: int) -> None:
    await db.execute(
        "INSERT INTO tasks (task_type, status, worker_id, created_at, generation_started_at, generation_processed_at)"
        " SELECT 't' || n %% 5, CASE WHEN n %% 50 = 0 THEN 'Failed' ELSE 'Complete' END, 'w' || n %% 20, at, at, at"
        " FROM generate_series(1, %s) n, LATERAL (SELECT now() - n * interval '1 ms' AS at) x",
        [finished],
    )
    await fold(db)
    await db.execute("VACUUM ANALYZE tasks")
    await db.execute("VACUUM ANALYZE shiftboss.tallies")


async def pages(db: Database, view: str) -> tuple[int, list[str]]:
    """How many pages a look at the view touches, and which plan nodes read all of `tasks`."""
    await db.fetch(f"SELECT * FROM {view}")
    row = await db.fetch_one(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {view}")
    assert row is not None
    root = row["QUERY PLAN"][0]["Plan"]
    return root["Shared Hit Blocks"] + root["Shared Read Blocks"], list(scans(root))


def scans(node: dict[str, Any]) -> list[str]:
    whole = (
        [node["Node Type"]] if "Seq Scan" in node["Node Type"] and node["Relation Name"] == "tasks" else []
    )
    return whole + [found for child in node.get("Plans", []) for found in scans(child)]


@pytest.mark.session  # it vacuums
async def test_no_view_reads_the_history(db: Database) -> None:
    await db.execute("INSERT INTO workers (id) SELECT 'w' || n FROM generate_series(0, 19) n")
    await db.tasks.enqueue([NewTask(task_type="t1") for _ in range(300)])
    await db.tasks.claim("w1", 100)
    await seed(db, 5_000)
    small = {view: await pages(db, view) for view in VIEWS}
    await seed(db, 60_000)
    for view in VIEWS:
        touched, whole = await pages(db, view)
        assert not whole, f"{view} reads the whole table"
        assert touched <= small[view][0] * 1.5 + 50, f"{view}: {small[view][0]} pages, then {touched}"


@pytest.mark.session  # it vacuums
async def test_running_tasks_are_found_by_worker(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(2000)])
    await db.tasks.claim("other", 1900)
    await db.tasks.claim("w", 5)
    await db.execute("VACUUM ANALYZE tasks")
    row = await db.fetch_one(
        "EXPLAIN (FORMAT JSON) SELECT id FROM tasks WHERE status = 'In Progress' AND worker_id = 'w'"
    )
    assert row is not None
    plan = row["QUERY PLAN"][0]["Plan"]
    plan = plan["Plans"][0] if plan["Node Type"] == "Bitmap Heap Scan" else plan
    assert plan["Index Name"] == "idx_tasks_status_worker"
    assert "status" in plan["Index Cond"], "without it PostgreSQL before 18 walks all running tasks"


async def test_one_round_prunes_everything_that_is_old(db: Database) -> None:
    await db.execute(
        "INSERT INTO tasks (task_type, status, generation_processed_at)"
        " SELECT 't', 'Complete', now() - interval '8 days' FROM generate_series(1, 52000)"
    )
    assert await Pruner(db).prune() == 52_000


async def test_pruning_leaves_a_locked_row_for_later(db: Database) -> None:
    await restore(db)
    await db.execute("UPDATE tasks SET generation_processed_at = now() - interval '8 days'")
    async with db.dedicated() as conn, conn.transaction():
        await conn.execute("SELECT FROM tasks WHERE status = 'Failed' FOR UPDATE")
        assert await Pruner(db).prune() == 1
    assert await Pruner(db).prune() == 1


def test_a_batch_takes_a_fifth_of_a_second() -> None:
    batch = BatchSize()
    for _ in range(20):
        batch.took(batch.size / 10_000)  # ten thousand rows a second
    assert batch.size == pytest.approx(2_000, rel=0.1)
    for _ in range(20):
        batch.took(batch.size / 1_000_000)
    assert batch.size == BatchSize.LARGEST
    for _ in range(20):
        batch.took(60)
    assert batch.size == BatchSize.SMALLEST
