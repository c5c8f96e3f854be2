"""Every finding of the doctor, with its real cause where possible."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from shiftboss.cli import findings
from shiftboss.cli.findings import Finding
from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.insights.condition import Condition
from shiftboss.db.migrate import migrate
from shiftboss.db.roles import Kind, grants
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from tests.conftest import as_superuser
from tests.pooler import needs_pooler, pooler
from tests.servers import direct

GB = 1024**3


def said(found: list[Finding], word: str) -> Finding:
    """The one finding whose message has this word in it."""
    matching = [finding for finding in found if word in finding.message]
    assert len(matching) == 1, found
    return matching[0]


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = findings.find_spec
    monkeypatch.setattr(findings, "find_spec", lambda name: None if name == "redis" else there(name))
    finding = said(findings.installation(), "extras not installed: redis")
    assert (finding.level, finding.advice) == ("ok", "to install them: pip install 'shiftboss[redis]'")


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
    assert finding.message == f"0.0 GB free on the disk of {place}"


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
                for _ in range(16):
                    stack.enter_context(psycopg.connect(url))
                crowded = said(await findings.database(db), "of 20 connections in use")
            assert crowded.level == "warning"
            assert crowded.advice == "raise max_connections, or lower database.pool_size"
    finally:
        server.release()
        server.stop()


def test_a_standby() -> None:
    [standby] = findings._settings({"fsync": True, "autovacuum": True, "standby": True})
    assert (standby.level, standby.advice) == ("problem", "set database.url to the primary")


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
        assert f"pg_terminate_backend({conn.info.backend_pid})" in (finding.command or "")


async def test_sessions_of_other_roles(database_url: str, login: str) -> None:
    """An ordinary role counts them, and is told how to see what they do."""
    role = urlsplit(login).username or ""
    await grants(database_url, Kind.OPERATOR, role, apply=True)
    async with await Database.open(login) as db:
        before = (await db.insights.condition.server())["connections"]
        async with await psycopg.AsyncConnection.connect(database_url):
            assert (await db.insights.condition.server())["connections"] > before
        hidden = said(await findings.database(db), "long transactions of other roles are not visible")
        assert hidden.advice is not None
        with psycopg.connect(as_superuser(database_url), autocommit=True) as conn:
            conn.execute(hidden.advice.partition("run: ")[2].encode())
        shown = await findings.database(db)
    assert not [finding for finding in shown if "not visible" in finding.message]


async def test_a_table_of_dead_rows(db: Database) -> None:
    async with db.transaction() as conn:
        await conn.execute("ALTER TABLE shiftboss.events SET (autovacuum_enabled = false)")
        await conn.execute("INSERT INTO shiftboss.events (kind) SELECT 'x' FROM generate_series(1, 10500)")
        await conn.execute("DELETE FROM shiftboss.events")
        await conn.execute("SELECT pg_stat_force_next_flush()")
    finding = said(await findings.database(db), "shiftboss.events has")
    assert finding.command == 'shiftboss db shell -- -c "VACUUM shiftboss.events"'


async def test_a_silent_worker_and_a_stuck_task(db: Database) -> None:
    await db.workers.register(Member(id="w"))
    [made] = await db.tasks.enqueue([NewTask(task_type="t")])
    await db.tasks.claim("w")
    await db.execute("UPDATE workers SET last_heartbeat = now() - interval '6 minutes'")
    await db.execute("UPDATE tasks SET generation_started_at = now() - interval '11 minutes'")
    commands = [finding.command for finding in await findings.fleet(db) if finding.level == "warning"]
    assert commands == ["shiftboss health", f"shiftboss tasks show {made.id}"]


async def test_slots_that_gave_up(db: Database) -> None:
    await db.health.begin_supervisor("a", 1, {"q": 1})
    slot = await db.health.open_slot("a", "q")
    await db.health.update_status(slot, "crashed", reason="boom")
    await db.health.update_status(slot, "failed")
    found = await findings.fleet(db)
    failed = said(found, f"{slot} is failed")
    assert (failed.level, failed.command) == ("problem", f"shiftboss restart {slot}")
    assert said(found, "all 1 workers").command == "shiftboss restart --all"


async def test_a_look_that_fails_is_a_finding(db: Database) -> None:
    await db.execute("DROP VIEW shiftboss.health_alerts")
    [finding] = await findings._checked(findings.fleet, db)
    assert (finding.level, finding.area) == ("problem", "fleet")
    assert finding.message.startswith("the check failed: ")


async def test_an_index_of_a_documented_name_but_other_columns_is_told(db: Database) -> None:
    assert await db.insights.condition.strange_indexes() == []
    await db.execute("DROP INDEX idx_tasks_queued_created")
    await db.execute("DROP INDEX idx_tasks_running_started")
    await db.execute("CREATE INDEX idx_tasks_queued_created ON tasks (task_type, lower(status))")
    found = await findings.database(db)
    other = said(found, "idx_tasks_queued_created is on (task_type, an expression)")
    assert other.advice == (
        "DROP INDEX idx_tasks_queued_created; CREATE INDEX idx_tasks_queued_created ON public.tasks (created_at)"
    )
    for statement in (other.advice or "").split("; "):
        await db.execute(statement)
    assert said(found, "idx_tasks_running_started is missing").level == "warning"
    await db.execute(said(found, "idx_tasks_running_started").advice or "")
    assert await db.insights.condition.strange_indexes() == []


@needs_pooler
async def test_a_pooler_is_told(database_url: str) -> None:
    async with pooler(direct(database_url)) as url, await Database.open(url) as db:
        assert db.pooled
        finding = said(await findings.database(db), "through a pooler")
    assert "database.direct_url" in (finding.advice or "")
