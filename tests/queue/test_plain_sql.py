"""What any SQL client may do to the documented tables: beat, update and write metadata by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import NewTask
from tests.queue.test_queue import enqueue, status

ODD: list[Any] = [
    24576.5,
    "24 GB",
    "24576",
    {"a": [1]},
    [1, 2],
    "NaN",
    "Infinity",
    "",
    None,
    True,
    10**400,
    -5,
    "1e5",
]


def as_json(value: Any) -> Jsonb:
    return Jsonb(value, dumps=json.dumps)  # which knows numbers of any length


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
async def test_no_metadata_breaks_a_view(db: Database, odd: Any) -> None:
    for name in ("vram_total_mb", "vram_used_mb"):
        await db.execute(
            "INSERT INTO workers (id, metadata, resource_usage) VALUES (%s, %s, %s)",
            [name, as_json({name: odd, "orchestrator_status": odd}), as_json({"goroutine_count": odd})],
        )
    await db.execute("INSERT INTO health (component) VALUES ('worker:q:1')")
    await db.execute("UPDATE health SET details_json = %s", [as_json({"paused": odd})])
    for view in ("active_workers_health", "orchestrator_status", "worker_performance", "shiftboss.worker_health",
                 "shiftboss.members", "shiftboss.slots", "shiftboss.health_metrics"):  # fmt: skip
        assert await db.fetch(f"SELECT * FROM {view}")
    assert await db.fetch("SELECT * FROM shiftboss.claim('vram_total_mb')") == []


async def test_figures_that_can_be_read_are_shown(db: Database) -> None:
    metadata = Jsonb({"vram_total_mb": 24576.5, "vram_used_mb": "12288"})
    await db.execute("INSERT INTO workers (id, metadata) VALUES ('w', %s)", [metadata])
    row = await db.fetch_one(
        "SELECT vram_total_mb, vram_used_mb, vram_usage_percent FROM active_workers_health"
    )
    assert row is not None
    assert (row["vram_total_mb"], row["vram_used_mb"], float(row["vram_usage_percent"])) == (
        24577,
        12288,
        50.0,
    )


async def test_a_worker_that_beats_by_a_plain_update_keeps_its_tasks(db: Database) -> None:
    id = await enqueue(db)
    await db.fetch("SELECT * FROM func_claim_available_task('plain')")
    old = timedelta(minutes=20)
    await db.execute("UPDATE workers SET lease_expires_at = now() - %s, last_heartbeat = now()", [old])
    await db.execute("UPDATE tasks SET generation_started_at = now() - %s", [old])
    async with (
        db.transaction() as conn
    ):  # long after the server's start, which gives every lease its time again
        await conn.execute("SELECT set_config('shiftboss.now', (now() + interval '4 minutes')::text, true)")
        assert await (await conn.execute("SELECT * FROM shiftboss.rescue()")).fetchone() == {
            "workers_lost": 0, "tasks_rescued": 0, "tasks_expired": 0,
        }  # fmt: skip
        await conn.execute("SELECT set_config('shiftboss.now', (now() + interval '6 minutes')::text, true)")
        await conn.execute("SELECT * FROM shiftboss.rescue()")
    assert await status(db, id) == ["Queued"]


async def test_updated_at_follows_a_plain_update(db: Database) -> None:
    id = await enqueue(db)
    await db.execute("UPDATE tasks SET updated_at = now() - interval '1 day'")
    await db.execute("UPDATE tasks SET params = '{\"n\": 1}'")
    row = await db.fetch_one(
        "SELECT updated_at > now() - interval '1 minute' AS fresh FROM tasks WHERE id = %s", [id]
    )
    assert row == {"fresh": True}
    row = await db.fetch_one(
        "UPDATE tasks SET updated_at = '2020-01-01Z' RETURNING updated_at::date::text AS at"
    )
    assert row == {"at": "2020-01-01"}


async def test_updated_at_with_a_clock_that_stands_still(db: Database) -> None:
    await enqueue(db)
    async with db.transaction() as conn:
        await conn.execute("SET LOCAL shiftboss.now = '2100-01-01Z'")
        for _ in range(2):
            await conn.execute("UPDATE tasks SET params = '{}'")
    row = await db.fetch_one("SELECT extract(year FROM updated_at)::int AS year FROM tasks")
    assert row == {"year": 2100}


async def test_a_terminal_failure_clears_the_worker(db: Database) -> None:
    id = await enqueue(db, max_attempts=1)
    await db.fetch("SELECT * FROM func_claim_available_task('w')")
    await db.execute("SELECT func_mark_task_failed(%s, 'boom')", [id])
    row = await db.fetch_one("SELECT status, worker_id, last_worker_id FROM tasks")
    assert row == {"status": "Failed", "worker_id": None, "last_worker_id": "w"}
    row = await db.fetch_one("SELECT worker_id FROM recent_task_activity")
    assert row == {"worker_id": "w"}


async def test_tracking_takes_the_documented_parameter_names(db: Database) -> None:
    [row] = await db.fetch(
        "SELECT ai._worker_start(version => '1', expected_heartbeat_interval => '1 minute') AS id"
    )
    await db.execute(
        "SELECT ai._worker_heartbeat(worker_id => %s, successes => 2, errors => 1, error_message => 'boom')",
        [row["id"]],
    )
    await db.execute("INSERT INTO ai.vectorizer (id, source_table) VALUES (7, 'tasks')")
    for error in (None, "boom"):
        await db.execute(
            "SELECT ai._worker_progress(worker_id => %s, vectorizer_id => 7, successes => 3, error_message => %s)",
            [row["id"], error],
        )
    counted = await db.fetch_one("SELECT success_count, error_count FROM ai.vectorizer_worker_process")
    assert counted == {"success_count": 2, "error_count": 1}
    counted = await db.fetch_one("SELECT success_count, error_count FROM ai.vectorizer_worker_progress")
    assert counted == {"success_count": 3, "error_count": 1}


async def test_a_rate_holds_for_claims_that_waited_for_its_lock(db: Database) -> None:
    """A claim that began before another and got the lock after it must not turn the bucket's time back."""
    await db.tasks.set_limit("task_type", "t", rate=40, rate_period=timedelta(seconds=1))
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(600)])
    await db.fetch("SELECT shiftboss.admit('w' || n) FROM generate_series(1, 8) n")

    async def work(name: str) -> None:
        for _ in range(25):
            await db.tasks.claim(name, 3)

    await asyncio.gather(*(work(f"w{n}") for n in range(1, 9)))
    most = await db.fetch_one(
        "SELECT max(n) AS n FROM (SELECT count(*) OVER (ORDER BY generation_started_at"
        " RANGE BETWEEN CURRENT ROW AND interval '1 second' FOLLOWING) AS n FROM tasks WHERE status = 'In Progress') x"
    )
    assert most is not None
    assert 40 <= most["n"] <= 81, "a full bucket and what flows in within a second"


async def test_the_bucket_s_time_never_runs_backwards(db: Database) -> None:
    given = '{"rate": 40, "rate_period": "1 second", "tokens": 10, "refilled_at": "2026-01-01 00:00:10Z"}'
    limit = f"jsonb_populate_record(NULL::shiftboss.limits, '{given}')"
    row = await db.fetch_one(f"SELECT shiftboss.tokens({limit}, '2026-01-01 00:00:05Z') AS n")
    assert row == {"n": 10.0}


async def test_the_statistics_of_a_beat_count_once(db: Database) -> None:
    await db.execute("SELECT shiftboss.register('w')")

    def rows(beat: int) -> dict[str, Any]:
        return {
            "queue": "q",
            "task_type": "t",
            "completed": 1,
            "failed": 0,
            "seconds": 1.0,
            "buckets": [],
            "beat": beat,
        }

    for stats in ([rows(1)], [rows(1)], [rows(1), rows(2)], [rows(2)]):
        await db.workers.beat("w", stats=stats)
    assert await _completed(db) == 2
    await db.execute("SELECT shiftboss.register('w')")  # a new process counts from the start
    await db.workers.beat("w", stats=[rows(1)])
    assert await _completed(db) == 3
    await db.workers.beat("w", stats=[rows(2), rows(3), rows(4)])  # none of them landed until now
    assert await _completed(db) == 6


async def _completed(db: Database) -> int:
    row = await db.fetch_one("SELECT sum(completed)::int AS n FROM shiftboss.stats")
    assert row is not None
    return int(row["n"])


async def test_an_empty_type_is_refused(db: Database) -> None:
    async with db.dedicated() as conn:
        with pytest.raises(psycopg.errors.CheckViolation, match="task_type"):
            await conn.execute("INSERT INTO tasks (task_type) VALUES ('')")
        await conn.execute("INSERT INTO tasks (task_type) VALUES ('t')")
        with pytest.raises(psycopg.errors.CheckViolation, match="task_type"):
            await conn.execute("UPDATE tasks SET task_type = ''")


async def test_an_unknown_field_names_the_known_ones(db: Database) -> None:
    with pytest.raises(DatabaseError, match='unknown field "prio"') as caught:
        await db.fetch("""SELECT * FROM shiftboss.enqueue('[{"task_type": "a", "prio": 3}]')""")
    for field in dataclasses.fields(NewTask):
        assert field.name in str(caught.value.hint)


@pytest.mark.parametrize("params", ["3", '"text"', "[1]", "true"])
async def test_params_are_an_object(db: Database, params: str) -> None:
    with pytest.raises(DatabaseError, match="params must be a JSON object"):
        await db.fetch(f"""SELECT * FROM shiftboss.enqueue('[{{"task_type": "a", "params": {params}}}]')""")
    assert await db.fetch("""SELECT * FROM shiftboss.enqueue('[{"task_type": "a", "params": null}]')""")
