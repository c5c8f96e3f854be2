"""The doctor reports every problem of a broken fleet, and every command that it prints works."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from shiftboss.cli import findings
from shiftboss.db import Database
from shiftboss.leader.alerts import Alarm
from shiftboss.leader.pruner import Pruner
from shiftboss.leader.rules import all_rules
from shiftboss.model.settings import AlertSettings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Capabilities, Member

ROOT = Path(__file__).resolve().parents[2]


class Hint(NamedTuple):
    level: str
    area: str
    message: str
    advice: str
    since: str
    command: str


async def old_work(db: Database) -> None:
    """Tasks that wait too long, run too long, or can never run."""
    past = datetime.now(UTC) - timedelta(hours=1)
    await db.workers.register(Member(id="silent", capabilities=Capabilities(task_types=["slow"])))
    await db.tasks.enqueue([NewTask(task_type="slow", queue="slow")])
    await db.tasks.claim("silent", 1)
    await db.execute("UPDATE workers SET last_heartbeat = now() - interval '6 minutes'")
    await db.execute("UPDATE tasks SET generation_started_at = now() - interval '11 minutes'")
    await db.tasks.enqueue([NewTask(task_type="nobody_can", queue="mail", run_at=past)])


async def failures(db: Database) -> None:
    work = {"queue": "q", "task_type": "flaky", "completed": 1, "failed": 30, "seconds": 1, "buckets": []}
    await db.workers.register(Member(id="w", capabilities=Capabilities(task_types=["flaky"])))
    await db.workers.beat("w", [], {}, [work])
    await db.tasks.enqueue([NewTask(task_type="flaky", queue="q", max_attempts=1)])
    held = [(task.id, task.lease) for task in await db.tasks.claim("w", 1)]
    await db.tasks.fail(held, ["ValueError: no shelf"])
    await Pruner(db).fold()


async def slots(db: Database) -> None:
    await db.health.begin_supervisor("a", 1, {"q": 1})
    slot = await db.health.open_slot("a", "q")
    await db.health.update_status(slot, "crashed", reason="boom")
    await db.health.update_status(slot, "failed")
    await db.execute("UPDATE health SET restarts = array_fill(extract(epoch FROM now())::float8, '{4}')")


async def extensions(db: Database) -> None:
    await db.execute(
        "INSERT INTO shiftboss.ai_providers (provider, circuit, opened_at, daily_budget, recovery)"
        " VALUES ('openai', 'open', now(), 10, '1 day'), ('azure', 'half-open', now(), NULL, '1 day')"
    )
    await db.execute("SELECT shiftboss.ai_add_spend('openai', 1, 0, 1, 1, 12)")
    run = await db.runs.start_run("verify")
    await db.execute("UPDATE worker_runs SET status = 'failed', finished_at = now() WHERE id = %s", [run.id])
    await db.execute("CREATE TABLE memos (id int PRIMARY KEY, body text)")
    await db.execute("INSERT INTO memos VALUES (1, 'a')")
    await db.vectorizers.create("memos", columns=["body"], name="late", dimensions=8)
    [row] = await db.fetch("SELECT ai._queue_of(v) AS queue FROM ai.vectorizer v")
    await db.execute(f"UPDATE {row['queue']} SET due_at = now() - interval '1 hour'")


async def undelivered(db: Database) -> None:
    """Alerts that fire, announced to nobody who listens."""
    closed = AlertSettings(webhooks=("http://127.0.0.1:9/",))
    alarm = Alarm(db, closed)
    await alarm.look()
    for _ in range(2):
        await alarm.send()
        await db.execute("UPDATE shiftboss.alert_deliveries SET next_at = now()")


def shell(command: str, database_url: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    shim = tmp_path / "bin" / "shiftboss"
    if not shim.exists():
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shiftboss "$@"\n')
        shim.chmod(0o755)
    env = os.environ | {
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "SHIFTBOSS_DATABASE_URL": database_url,
    }
    return subprocess.run(
        ["sh", "-c", command], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(300)
async def test_every_command_of_the_doctor_works_as_printed(
    db: Database, database_url: str, tmp_path: Path
) -> None:
    for trouble in (old_work, failures, slots, extensions, undelivered):
        await trouble(db)
    done = shell("shiftboss doctor", database_url, tmp_path)
    assert done.returncode == 1, done.stderr
    hints = [Hint(*line.split("\t")) for line in done.stdout.splitlines()]
    wrong = [hint for hint in hints if hint.level != "ok"]
    assert len(wrong) < 40, "one screen"
    told = "\n".join(hint.message for hint in wrong)
    firing = {row["rule"] for row in await db.alerts.firing()}
    assert firing == {rule.name for rule in all_rules()}, told
    for row in await db.alerts.firing():
        if row["rule"] not in ("queue_too_old", "vectorizer_behind"):  # their seconds go on
            assert row["message"] in told
    assert "ValueError: no shelf" in told
    assert "no worker serves this type" in told
    assert sum(bool(hint.since) for hint in wrong) >= len(firing)
    commands = {hint.command for hint in wrong if hint.command}
    assert len(commands) >= 10
    assert all("shiftboss " not in hint.advice for hint in hints), "commands are told apart from advice"
    failed = {
        command: result.stderr
        for command in sorted(commands)
        if (result := shell(command, database_url, tmp_path)).returncode
    }
    assert failed == {}


@pytest.mark.parametrize(
    "statement", ["VACUUM shiftboss.events", "SELECT 1", "TABLE shiftboss.unusable_tasks"]
)
def test_statements_are_run_as_printed(statement: str, database_url: str, tmp_path: Path) -> None:
    result = shell(findings._sql(statement), database_url, tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_port_in_use_is_told_before_serving(database_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "shiftboss", "admin", "--port", port],
            env=os.environ | {"SHIFTBOSS_DATABASE_URL": database_url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, "serving" in done.stdout) == (2, False)
    assert f"port {port} of 127.0.0.1 cannot be used" in done.stderr
