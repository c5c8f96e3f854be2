"""The tracker against a real database: beats, deltas put back, three strikes, roles without privilege."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import structlog
from structlog.testing import capture_logs

from shiftboss.db import Database
from shiftboss.db.tracking import Availability
from shiftboss.worker import tracking
from shiftboss.worker.tracking import Tracker

Eventually = Callable[..., Awaitable[Any]]
BREAK = "ALTER FUNCTION ai._worker_heartbeat RENAME TO _gone"
MEND = "ALTER FUNCTION ai._gone RENAME TO _worker_heartbeat"


@pytest.fixture(autouse=True)
def heard() -> None:
    """Tests of commands set up the logs of the process, and a logger keeps the set-up of its first use."""
    structlog.reset_defaults()
    vars(tracking.log).pop("bind", None)


async def row_of(db: Database, tracker: Tracker) -> dict[str, Any]:
    row = await db.fetch_one("SELECT * FROM ai.vectorizer_worker_process WHERE id = %s", [tracker.id])
    assert row
    return row


async def test_beats_and_the_last_beat_bring_every_count_home_once(
    db: Database, eventually: Eventually
) -> None:
    tracker = Tracker(db, interval=0.05)
    assert await tracker.start() == tracker.id is not None
    tracker.succeeded(3)
    await eventually(lambda: _has(db, tracker, success_count=3))
    tracker.succeeded(2)
    tracker.failed("boom \ud800\x00")
    await tracker.stop()
    row = await row_of(db, tracker)
    assert (row["success_count"], row["error_count"]) == (5, 1)
    assert row["last_error_message"] == "boom \\ud800\\x00"
    assert row["expected_heartbeat_interval"].total_seconds() == 0.05
    assert not tracker.beating


async def test_deltas_of_a_failed_beat_are_put_back(db: Database, eventually: Eventually) -> None:
    tracker = Tracker(db, interval=0.1)
    await tracker.start()
    with capture_logs() as logs:
        await db.execute(BREAK)
        tracker.succeeded(4)
        tracker.failed("first")
        await eventually(lambda: [entry for entry in logs if entry["event"] == "a tracking beat failed"])
        tracker.succeeded(1)
        await db.execute(MEND)
        await eventually(lambda: _has(db, tracker, success_count=5))
    row = await row_of(db, tracker)
    assert (row["error_count"], row["last_error_message"]) == (1, "first")
    await tracker.stop()


async def test_after_three_strikes_the_beat_stops_and_the_worker_goes_on(
    db: Database, eventually: Eventually
) -> None:
    tracker = Tracker(db, interval=0.02)
    await tracker.start()
    await db.execute(BREAK)
    with capture_logs() as logs:
        await eventually(lambda: not tracker.beating)
    failures = [entry for entry in logs if entry["event"] == "a tracking beat failed"]
    assert len(failures) <= 3
    assert [entry["strikes"] for entry in logs if entry["log_level"] == "error"] == [3]
    tracker.succeeded()
    await tracker.stop()


async def test_without_the_tables_tracking_is_off(db: Database) -> None:
    await db.execute("ALTER TABLE ai.vectorizer_worker_process RENAME TO elsewhere")
    assert await db.tracking.available() is Availability.ABSENT
    tracker = Tracker(db)
    assert await tracker.start() is None
    tracker.succeeded()
    await tracker.stop()


@pytest.fixture
def stranger_url(database_url: str) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = "stranger_" + database_url.rpartition("_")[2]
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        parts = urlsplit(database_url)
        yield urlunsplit(parts._replace(netloc=f"{name}:secret@{parts.netloc.rpartition('@')[2]}"))
        conn.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_role_without_privilege_is_told_apart_loudly(stranger_url: str) -> None:
    async with await Database.open(stranger_url) as db:
        assert await db.tracking.available() is Availability.HIDDEN
        with capture_logs() as logs:
            tracker = Tracker(db)
            assert await tracker.start() is None
    assert [entry["log_level"] for entry in logs] == ["error"]
    assert "may not see" in logs[0]["event"]


async def test_a_role_with_too_little_privilege_works_on_without_tracking(
    database_url: str, stranger_url: str
) -> None:
    name = urlsplit(stranger_url).username
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"GRANT USAGE ON SCHEMA ai TO {name}")
        conn.execute(f"GRANT SELECT ON ai.vectorizer_worker_process TO {name}")
    async with await Database.open(stranger_url) as db:
        with capture_logs() as logs:
            assert await Tracker(db).start() is None
    assert "registration failed" in logs[0]["event"]
    assert "permission denied" in logs[0]["error"]


async def _has(db: Database, tracker: Tracker, **wanted: Any) -> bool:
    row = await row_of(db, tracker)
    return all(row[name] == value for name, value in wanted.items())
