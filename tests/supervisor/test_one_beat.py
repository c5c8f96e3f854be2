"""One heartbeat extends the leases, the slot and the incarnation, and errors of the rows cost no lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.model.worker import Member
from tests.servers import direct
from tests.supervisor.conftest import SLOT, Supervise

RECORD = """
CREATE TABLE written (transaction xid8, what text);
CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.written VALUES (pg_current_xact_id(), TG_TABLE_NAME);
    RETURN NULL;
END $$;
CREATE TRIGGER record AFTER UPDATE ON health FOR EACH ROW
    WHEN (OLD.last_seen <> NEW.last_seen AND NEW.status <> 'starting') EXECUTE FUNCTION record();
CREATE TRIGGER record AFTER UPDATE ON workers FOR EACH ROW WHEN (OLD.last_heartbeat <> NEW.last_heartbeat)
    EXECUTE FUNCTION record();
CREATE TRIGGER record AFTER UPDATE ON ai.vectorizer_worker_process FOR EACH ROW EXECUTE FUNCTION record();
"""
WRITTEN = "SELECT array_agg(what ORDER BY what) AS tables FROM written GROUP BY transaction"
ALL = ["health", "vectorizer_worker_process", "workers"]


async def test_a_supervised_worker_beats_once(
    db: Database, supervise: Supervise, eventually: Callable[..., Any]
) -> None:
    await db.execute(RECORD)

    async def beats() -> list[list[str]]:
        return [row["tables"] for row in await db.fetch(WRITTEN)]

    async def several() -> bool:
        return (await beats()).count(ALL) >= 3

    async with supervise({"q": 1}):
        await eventually(several, 60)
    alone = [tables for tables in await beats() if tables not in (ALL, ["workers"])]
    assert alone == [], "rows were kept by calls of their own"


@pytest.fixture
async def beaten(db: Database) -> dict[str, Any]:
    """What a process that has registered everywhere says with its beat."""
    incarnation = await db.tracking.worker_start("1", timedelta(seconds=5))
    await db.workers.register(Member(id="w1", incarnation=incarnation))
    await db.health.register_worker(SLOT, 4711)
    return {
        "slot": {"component": SLOT, "pid": 4711, "status": "healthy", "details": {"tasks_done": 2}},
        "process": {
            "id": str(incarnation), "version": "1", "interval": "5 s", "successes": 2, "errors": 1, "message": "no"
        },
    }  # fmt: skip


async def beat(db: Database, rows: dict[str, Any]) -> dict[str, Any]:
    """Beat, and check that the leases were renewed; what went wrong with the rows."""
    await db.execute("UPDATE workers SET lease_expires_at = now() - interval '1 minute'")
    orders, trouble = await db.workers.beat_process("w1", [], {"running": 0}, None, None, **rows)
    assert orders.known
    assert await db.fetch("SELECT FROM workers WHERE lease_expires_at > now() + interval '10 s'")
    return trouble


async def incarnation(db: Database, id: str) -> dict[str, Any]:
    row = await db.fetch_one("SELECT * FROM ai.vectorizer_worker_process WHERE id = %s", [UUID(id)])
    assert row is not None
    return row


async def test_all_rows_are_kept(db: Database, beaten: dict[str, Any]) -> None:
    assert await beat(db, beaten) == {}
    health = await db.fetch_one("SELECT * FROM health")
    assert health is not None
    assert (health["status"], health["details_json"]) == ("healthy", {"tasks_done": 2})
    row = await incarnation(db, beaten["process"]["id"])
    assert (row["success_count"], row["error_count"], row["last_error_message"]) == (2, 1, "no")
    assert row["last_heartbeat"] == row["last_error_at"]


@pytest.mark.serial
async def test_a_row_that_somebody_has_locked_delays_nothing(
    db: Database, database_url: str, beaten: dict[str, Any]
) -> None:
    with psycopg.connect(direct(database_url)) as other:
        other.execute("SELECT FROM health FOR UPDATE")
        other.execute("SELECT FROM ai.vectorizer_worker_process FOR UPDATE")
        began = time.monotonic()
        trouble = await beat(db, beaten)
        assert time.monotonic() - began < 5
    assert {part: why["sqlstate"] for part, why in trouble.items()} == {"slot": "55P03", "process": "55P03"}
    assert await beat(db, beaten) == {}


@pytest.mark.parametrize(
    ("broken", "part"),
    [
        ("ALTER TABLE ai.vectorizer_worker_process RENAME TO elsewhere", "process"),
        ("ALTER FUNCTION ai._worker_heartbeat RENAME TO _gone", "process"),
        ("ALTER TABLE health ADD CHECK (pid <> 4711) NOT VALID", "slot"),
        ("DELETE FROM health", "slot"),
        ("UPDATE health SET status = 'crashed'", "slot"),
    ],
)
async def test_trouble_with_one_row_costs_neither_the_lease_nor_the_other(
    db: Database, beaten: dict[str, Any], broken: str, part: str
) -> None:
    await db.execute(broken)
    trouble = await beat(db, beaten)
    assert trouble.keys() == {part}
    assert trouble[part]["message"]


async def test_a_deleted_incarnation_registers_again_with_its_counts(
    db: Database, beaten: dict[str, Any]
) -> None:
    beaten["process"]["id"] = str(uuid4())
    trouble = await beat(db, beaten)
    row = await incarnation(db, trouble["process"]["id"])
    assert (row["success_count"], row["heartbeat_count"], row["version"]) == (2, 1, "1")
