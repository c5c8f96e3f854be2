"""Every finding of the doctor, by making its cause real where that can be done."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from shiftboss.cli import findings
from shiftboss.cli.findings import Finding
from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.insights.condition import Condition
from shiftboss.db.migrate import migrate
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member

GB = 1024**3


def said(found: list[Finding], word: str) -> Finding:
    """The one finding whose message has this word in it."""
    matching = [finding for finding in found if word in finding.message]
    assert len(matching) == 1, found
    return matching[0]


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = findings.find_spec
    monkeypatch.setattr(findings, "find_spec", lambda name: None if name == "redis" else there(name))
    finding = said(findings.installation(), "without the extras redis")
    assert (finding.level, finding.advice) == ("ok", "if you want them: pip install 'shiftboss[redis]'")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False).returncode:
        pytest.skip("no small disk can be made here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_disk_without_room_is_a_problem(small_disk: Path) -> None:
    place = small_disk / "not" / "yet" / "there"
    [finding] = findings.disk(Settings.load({"SHIFTBOSS_DATA_DIR": str(place)}))
    assert (finding.level, finding.area) == ("problem", "disk")
    assert finding.message == f"0.0 GB free where {place} is"


@pytest.mark.parametrize(
    ("free", "total", "level"), [(4, 100, "warning"), (4, 20, "ok"), (6, 1000, "ok"), (0.4, 1, "problem")]
)
def test_little_room_is_little_of_much(
    free: float, total: float, level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = type("Usage", (), {"free": int(free * GB), "total": int(total * GB)})
    monkeypatch.setattr(findings.shutil, "disk_usage", lambda place: usage)
    [finding] = findings.disk(Settings.load({"SHIFTBOSS_DATA_DIR": str(tmp_path)}))
    assert finding.level == level


async def test_a_carelessly_set_server(tmp_path: Path) -> None:
    careless = {"fsync": "off", "autovacuum": "off", "max_connections": "20", "shared_buffers": "16MB"}
    server = EmbeddedServer(tmp_path / "data", settings=careless, linger=0)
    try:
        url = server.acquire()
        await migrate(url)
        async with await Database.open(url) as db:
            found = await findings.database(db)
            assert said(found, "fsync is off").level == "problem"
            assert said(found, "autovacuum is off").level == "problem"
            assert said(found, "of 20 connections").level == "ok"
            with ExitStack() as stack:
                for _ in range(15):
                    stack.enter_context(psycopg.connect(url))
                crowded = said(await findings.database(db), "of 20 connections in use")
            assert crowded.level == "warning"
            assert crowded.advice == "raise max_connections, or lower database.pool_size"
    finally:
        server.release()
        server.stop()


async def test_no_pgvector(db: Database) -> None:
    assert not [finding for finding in await findings.database(db) if "pgvector" in finding.message]
    await db.execute("DROP EXTENSION vector CASCADE")
    finding = said(await findings.database(db), "no pgvector")
    assert (finding.level, finding.advice) == (
        "warning",
        "CREATE EXTENSION vector, then shiftboss db migrate",
    )


def test_a_standby_and_a_server_without_pgvector_at_all() -> None:
    server = {"fsync": True, "autovacuum": True, "standby": True, "vector": None, "vector_available": False}
    standby, missing = findings._settings(server)
    assert (standby.level, standby.advice) == ("problem", "use the primary")
    assert missing.advice == "install pgvector on the server, then shiftboss db migrate"


async def test_clocks_that_differ(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    from shiftboss.db.insights import condition

    real = condition.time.time
    monkeypatch.setattr(condition.time, "time", lambda: real() - 3600)
    finding = said(await findings.database(db), "clock differs")
    assert (finding.level, finding.area) == ("warning", "clock")


async def test_a_transaction_left_open(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Condition.old_transactions
    monkeypatch.setattr(Condition, "old_transactions", lambda self: look(self, 0))  # instead of five minutes
    async with await psycopg.AsyncConnection.connect(db.url, application_name="forgetful") as conn:
        await conn.execute("SELECT 1")
        finding = said(await findings.database(db), "a transaction of forgetful")
        assert f"pg_terminate_backend({conn.info.backend_pid})" in (finding.advice or "")


async def test_a_table_of_dead_rows(db: Database) -> None:
    async with db.transaction() as conn:
        await conn.execute("ALTER TABLE shiftboss.events SET (autovacuum_enabled = false)")
        await conn.execute("INSERT INTO shiftboss.events (kind) SELECT 'x' FROM generate_series(1, 10500)")
        await conn.execute("DELETE FROM shiftboss.events")
        await conn.execute("SELECT pg_stat_force_next_flush()")
    finding = said(await findings.database(db), "shiftboss.events has")
    assert finding.advice == "VACUUM shiftboss.events; is autovacuum on?"


async def test_a_silent_worker_and_a_stuck_task(db: Database) -> None:
    await db.workers.register(Member(id="w"))
    [made] = await db.tasks.enqueue([NewTask(task_type="t")])
    await db.tasks.claim("w")
    await db.execute("UPDATE workers SET last_heartbeat = now() - interval '6 minutes'")
    await db.execute("UPDATE tasks SET generation_started_at = now() - interval '11 minutes'")
    advice = [finding.advice for finding in await findings.fleet(db) if finding.level == "warning"]
    assert advice == [
        "its tasks go to others by themselves; look at its host and its log",
        f"shiftboss tasks show {made.id}, or shiftboss tasks cancel {made.id}",
    ]


async def test_slots_that_gave_up(db: Database) -> None:
    await db.health.begin_supervisor("a", 1, {"q": 1})
    slot = await db.health.open_slot("a", "q")
    await db.health.update_status(slot, "crashed", reason="boom")
    await db.health.update_status(slot, "failed")
    found = await findings.fleet(db)
    failed = said(found, f"{slot} is failed")
    assert (failed.level, failed.advice) == (
        "problem",
        f"shiftboss events --component {slot}, then shiftboss restart {slot}",
    )
    assert said(found, "all 1 workers").advice == "shiftboss events tells why; then shiftboss restart --all"


async def call(db: Database, outcome: str, cost: float = 0.0) -> None:
    admission = await db.ai.ai_admit(
        "openai", model="m", kind="completion", task_type="t", task_id=None, tokens=1, cost=cost, lease=30
    )
    assert admission.call_id is not None
    await db.ai.ai_settle(
        admission.call_id, outcome, model="m", prompt_tokens=1, completion_tokens=1, cost=cost,
        latency_ms=1, error="no answer" if outcome == "unavailable" else None, retry_after=None,
    )  # fmt: skip


async def configure(db: Database, daily_budget: float | None = None) -> None:
    await db.ai.ai_configure(
        "openai", model="m", requests_per_minute=None, tokens_per_minute=None, daily_budget=daily_budget,
        failure_limit=1, recovery=600,
    )  # fmt: skip


async def test_an_open_circuit(db: Database) -> None:
    await configure(db)
    await call(db, "unavailable")
    finding = said(await findings.providers(db), "the circuit of openai is open")
    assert finding.level == "warning"
    assert "no answer" in finding.message


async def test_a_spent_budget(db: Database) -> None:
    await configure(db, daily_budget=1.0)
    await call(db, "ok", cost=1.0)
    [finding] = [finding for finding in await findings.fleet(db) if finding.level == "warning"]
    assert "ai.openai.daily_budget" in (finding.advice or "")


async def test_a_look_that_fails_is_a_finding(db: Database) -> None:
    await db.execute("DROP VIEW shiftboss.health_alerts")
    [finding] = await findings._looked(findings.fleet, db)
    assert (finding.level, finding.area) == ("problem", "fleet")
    assert finding.message.startswith("can not look: ")
