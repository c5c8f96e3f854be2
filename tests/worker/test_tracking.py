"""The tracker with a real database: heartbeats, restored counts, three failures, roles without privileges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import psycopg

from shiftboss.db import Database
from shiftboss.db.tracking import Availability
from shiftboss.worker.presence import Presence
from shiftboss.worker.tracking import Tracker
from tests.cutter import Cutter
from tests.logs import capture_logs
from tests.servers import direct

Eventually = Callable[..., Awaitable[Any]]
BREAK = "ALTER FUNCTION ai._worker_heartbeat RENAME TO _gone"
MEND = "ALTER FUNCTION ai._gone RENAME TO _worker_heartbeat"


async def row_of(db: Database, tracker: Tracker) -> dict[str, Any]:
    row = await db.fetch_one("SELECT * FROM ai.vectorizer_worker_process WHERE id = %s", [tracker.id])
    assert row
    return row


async def test_beats_and_the_last_beat_bring_every_count_home_once(
    db: Database, eventually: Eventually
) -> None:
    tracker = Tracker(db, interval=0.05)
    assert await tracker.start() == tracker.id is not None
    async with Presence(db, tracker, every=0.05):
        tracker.succeeded(3)
        await eventually(lambda: _has(db, tracker, success_count=3))
        tracker.succeeded(2)
        tracker.failed("boom \ud800\x00")
    row = await row_of(db, tracker)
    tracker.succeeded()
    await tracker.stop()
    assert (await row_of(db, tracker))["success_count"] == 6
    assert (row["success_count"], row["error_count"]) == (5, 1)
    assert row["last_error_message"] == "boom \\ud800\\x00"
    assert row["expected_heartbeat_interval"].total_seconds() == 0.05


async def test_deltas_of_a_failed_beat_are_put_back(db: Database, eventually: Eventually) -> None:
    async with Tracker(db, 0.1) as tracker, Presence(db, tracker, every=0.1):
        await _put_back(db, tracker, eventually)


async def _put_back(db: Database, tracker: Tracker, eventually: Eventually) -> None:
    with capture_logs() as logs:
        await db.execute(BREAK)
        tracker.succeeded(4)
        tracker.failed("first")
        await eventually(lambda: [entry for entry in logs if entry["event"] == "tracking beat failed"])
        tracker.succeeded(1)
        await db.execute(MEND)
        await eventually(lambda: _has(db, tracker, success_count=5))
    row = await row_of(db, tracker)
    assert (row["error_count"], row["last_error_message"]) == (1, "first")


async def test_a_beat_whose_answer_was_lost_counts_once(
    db: Database, database_url: str, eventually: Eventually
) -> None:
    async with (
        Cutter(direct(database_url), b"keep_process") as cutter,
        await Database.open(cutter.url) as through,
    ):
        tracker = Tracker(through, interval=0.1)
        await tracker.start()
        tracker.succeeded(4)
        async with Presence(through, tracker, every=0.1):
            await eventually(lambda: cutter.cut)
            await eventually(lambda: _has(db, tracker, success_count=4))
            cutter.let = 1000
            tracker.succeeded(1)
            await eventually(lambda: _has(db, tracker, success_count=5))
        await tracker.stop()
    assert (await row_of(db, tracker))["success_count"] == 5


async def test_after_three_strikes_the_beat_stops_and_the_worker_goes_on(
    db: Database, eventually: Eventually
) -> None:
    async with Tracker(db, 0.02) as tracker, Presence(db, tracker, every=0.02):
        await db.execute(BREAK)
        with capture_logs() as logs:
            await eventually(lambda: not tracker.beating)
    failures = [entry for entry in logs if entry["event"] == "tracking beat failed"]
    assert len(failures) <= 3
    assert [entry["strikes"] for entry in logs if entry["log_level"] == "error"] == [3]


async def test_without_the_tables_tracking_is_off(db: Database) -> None:
    await db.execute("ALTER TABLE ai.vectorizer_worker_process RENAME TO elsewhere")
    assert await db.tracking.available() is Availability.ABSENT
    tracker = Tracker(db)
    assert await tracker.start() is None
    tracker.succeeded()
    await tracker.stop()


async def test_a_role_without_privilege_is_told_apart_loudly(login: str) -> None:
    async with await Database.open(login) as db:
        assert await db.tracking.available() is Availability.HIDDEN
        with capture_logs() as logs:
            tracker = Tracker(db)
            assert await tracker.start() is None
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert "has no access" in logs[0]["event"]


async def test_a_role_with_too_little_privilege_works_on_without_tracking(
    database_url: str, login: str
) -> None:
    name = urlsplit(login).username
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"GRANT USAGE ON SCHEMA ai TO {name}")
        conn.execute(f"GRANT SELECT ON ai.vectorizer_worker_process TO {name}")
    async with await Database.open(login) as db:
        with capture_logs() as logs:
            assert await Tracker(db).start() is None
    assert "registration failed" in logs[0]["event"]
    assert "permission denied" in logs[0]["error"]


async def _has(db: Database, tracker: Tracker, **wanted: Any) -> bool:
    row = await row_of(db, tracker)
    return all(row[name] == value for name, value in wanted.items())


async def test_a_process_whose_row_was_deleted_registers_again(db: Database, eventually: Eventually) -> None:
    async with Tracker(db, 0.05) as tracker, Presence(db, tracker, every=0.05):
        first = tracker.id
        tracker.succeeded(2)
        await db.execute("DELETE FROM ai.vectorizer_worker_process")
        await eventually(lambda: tracker.id != first)
        tracker.succeeded(3)
    row = await row_of(db, tracker)
    assert row["success_count"] in (3, 5)  # the first two may have been counted in the row that was deleted
    assert row["heartbeat_count"] > 0
