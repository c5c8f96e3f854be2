"""The tracking functions and the documented monitoring queries, as psql would call them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError

DEAD = """
SELECT id, version, last_heartbeat, success_count, error_count
FROM ai.vectorizer_worker_process
WHERE last_heartbeat < now() - expected_heartbeat_interval * 2;
"""
HEALTH = """
SELECT v.id, v.source_table, p.success_count, p.error_count,
       p.last_error_message, p.updated_at
FROM ai.vectorizer v
LEFT JOIN ai.vectorizer_worker_progress p ON p.vectorizer_id = v.id
ORDER BY v.id;
"""
CLEANUP = """
DELETE FROM ai.vectorizer_worker_process
WHERE last_heartbeat < now() - interval '7 days';
"""


async def start(db: Database, interval: str = "30 seconds") -> UUID:
    row = await db.fetch_one("SELECT ai._worker_start('0.1.0', %s::interval) AS id", [interval])
    assert row
    return row["id"]


async def process(db: Database, id: UUID) -> dict[str, Any]:
    row = await db.fetch_one("SELECT * FROM ai.vectorizer_worker_process WHERE id = %s", [id])
    assert row
    return row


async def vectorizer(db: Database) -> int:
    await db.execute("CREATE TABLE blog (id int PRIMARY KEY)")
    row = await db.fetch_one("INSERT INTO ai.vectorizer (source_table) VALUES ('blog') RETURNING id")
    assert row
    return row["id"]


async def progress(db: Database, vectorizer_id: int) -> dict[str, Any]:
    row = await db.fetch_one(
        "SELECT * FROM ai.vectorizer_worker_progress WHERE vectorizer_id = %s", [vectorizer_id]
    )
    assert row
    return row


async def test_start_registers_one_process(db: Database) -> None:
    row = await process(db, await start(db))
    assert row["version"] == "0.1.0"
    assert row["expected_heartbeat_interval"].total_seconds() == 30
    assert (row["heartbeat_count"], row["success_count"], row["error_count"]) == (0, 0, 0)
    assert row["last_error_at"] is None
    assert row["started"] == row["last_heartbeat"]


async def test_beats_accumulate_and_keep_the_last_error(db: Database) -> None:
    id = await start(db)
    await db.execute("SELECT ai._worker_heartbeat(%s, 42, 0, NULL)", [id])
    await db.execute("SELECT ai._worker_heartbeat(%s, 10, 3, 'API 429')", [id])
    failed = await process(db, id)
    assert failed["last_error_at"] == failed["last_heartbeat"]
    await db.execute("SELECT ai._worker_heartbeat(%s, 1, 0, NULL)", [id])
    row = await process(db, id)
    assert (row["heartbeat_count"], row["success_count"], row["error_count"]) == (3, 53, 3)
    assert row["last_error_message"] == "API 429"
    assert row["last_error_at"] == failed["last_error_at"] < row["last_heartbeat"]


async def test_stamps_are_wall_time_within_one_transaction(db: Database) -> None:
    id = await start(db)
    async with db.transaction() as conn:
        await conn.execute("SELECT ai._worker_heartbeat(%s, 1, 0, NULL)", [id])
        row = await (
            await conn.execute(
                "SELECT last_heartbeat > now() AS later FROM ai.vectorizer_worker_process WHERE id = %s", [id]
            )
        ).fetchone()
    assert row == {"later": True}


async def test_a_beat_of_an_unknown_process_is_refused(db: Database) -> None:
    with pytest.raises(DatabaseError, match="is not registered"):
        await db.execute("SELECT ai._worker_heartbeat(%s, 1, 0, NULL)", [uuid4()])


async def test_progress_is_one_row_for_all_workers(db: Database) -> None:
    vectorizer_id, one, two = await vectorizer(db), await start(db), await start(db)
    await db.execute("SELECT ai._worker_progress(%s, %s, 5, NULL)", [one, vectorizer_id])
    await db.execute("SELECT ai._worker_progress(%s, %s, 7, NULL)", [two, vectorizer_id])
    await db.execute("SELECT ai._worker_progress(%s, %s, 9, 'model not found')", [one, vectorizer_id])
    row = await progress(db, vectorizer_id)
    assert (row["success_count"], row["error_count"]) == (12, 1)
    assert (row["last_success_process_id"], row["last_error_process_id"]) == (two, one)
    assert row["last_error_message"] == "model not found"
    assert row["last_error_at"] == row["updated_at"] > row["last_success_at"]


async def test_progress_needs_no_process_and_goes_with_its_vectorizer(db: Database) -> None:
    vectorizer_id = await vectorizer(db)
    await db.execute("SELECT ai._worker_progress(%s, %s, 5, NULL)", [uuid4(), vectorizer_id])
    await db.execute("DELETE FROM ai.vectorizer WHERE id = %s", [vectorizer_id])
    assert await db.fetch("SELECT * FROM ai.vectorizer_worker_progress") == []


async def test_monitoring_queries_work_as_written(db: Database) -> None:
    alive, dead, old = await start(db), await start(db), await start(db)
    move = "UPDATE ai.vectorizer_worker_process SET last_heartbeat = now() - %s::interval WHERE id = %s"
    await db.execute(move, ["2 minutes", dead])
    await db.execute(move, ["8 days", old])
    assert {row["id"] for row in await db.fetch(DEAD)} == {dead, old}
    assert await db.execute(CLEANUP) == 1
    assert {row["id"] for row in await db.fetch("SELECT id FROM ai.vectorizer_worker_process")} == {
        alive,
        dead,
    }
    vectorizer_id = await vectorizer(db)
    assert [(row["id"], row["source_table"], row["success_count"]) for row in await db.fetch(HEALTH)] == [
        (vectorizer_id, "blog", None)
    ]


async def test_functions_are_invoker_with_a_fixed_path_and_the_index_exists(db: Database) -> None:
    rows = await db.fetch(
        "SELECT proname, prosecdef, proconfig FROM pg_proc WHERE pronamespace = 'ai'::regnamespace "
        "AND proname IN ('_worker_start', '_worker_heartbeat', '_worker_progress')"
    )
    assert len(rows) == 3
    assert all(
        not row["prosecdef"] and row["proconfig"] == ["search_path=pg_catalog, pg_temp"] for row in rows
    )
    indexes = await db.fetch("SELECT indexdef FROM pg_indexes WHERE tablename = 'vectorizer_worker_process'")
    assert any("(last_heartbeat)" in row["indexdef"] for row in indexes)


async def test_a_message_of_odd_characters_is_told_as_well_as_it_can(db: Database) -> None:
    id, followed = await start(db), await vectorizer(db)
    await db.tracking.worker_heartbeat(id, 0, 1, "no \x00 and no \udce9")
    await db.tracking.worker_progress(id, followed, 0, "no \x00 and no \udce9")
    told = r"no \x00 and no \udce9"
    assert (await process(db, id))["last_error_message"] == told
    assert (await progress(db, followed))["last_error_message"] == told


@pytest.mark.parametrize(
    "call",
    [
        "ai._worker_start('1', interval '-1 second')",
        "ai._worker_start('1', interval '0')",
        "ai._worker_heartbeat(worker_id => gen_random_uuid(), successes => -1, errors => 0, error_message => NULL)",
        "ai._worker_heartbeat(gen_random_uuid(), 0, -1, NULL)",
        "ai._worker_progress(worker_id => NULL, vectorizer_id => 1, successes => -1, error_message => NULL)",
    ],
)
async def test_negative_counts_and_intervals_are_refused(db: Database, call: str) -> None:
    with pytest.raises(DatabaseError, match="must"):
        await db.execute(f"SELECT {call}")
