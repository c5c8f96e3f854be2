"""A supervisor in the test's own event loop, with real worker processes below it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shiftboss.db import Database
from shiftboss.model.settings import SupervisorSettings
from shiftboss.model.task import NewTask
from shiftboss.supervisor import Supervisor

ROOT = Path(__file__).parents[2]
FAST = {
    "check_seconds": 0.2,
    "timeout_seconds": 20.0,
    "start_seconds": 30.0,
    "stop_seconds": 10.0,
    "kill_seconds": 0.5,
    "restart_delay_seconds": 0.05,
}
SLOT = "worker:q:0"
Supervise = Callable[..., AbstractAsyncContextManager[Supervisor]]


def worker_command(target: str = "tests.supervisor.app:app") -> Any:
    """The command line of the real worker."""

    def command(queue: str, component: str, member: str) -> list[str]:
        worker = [sys.executable, "-m", "shiftboss", "worker", target, "--log-level", "warning"]
        return [*worker, "--queue", queue, "--component", component, "--id", member]

    return command


def script_command(script: str) -> Any:
    """A command that is up in a moment: a shell script, with the component as $0."""
    return lambda queue, component, member: ["/bin/sh", "-c", script, component]


@pytest.fixture
def worker_environment(monkeypatch: pytest.MonkeyPatch, database_url: str, tmp_path: Path) -> None:
    """What child processes need to find our code and this test's database."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", "src")
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setenv("SHIFTBOSS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SHIFTBOSS_WORKER_BEAT_SECONDS", "0.2")
    monkeypatch.setenv("SHIFTBOSS_WORKER_GRACE_SECONDS", "5")


@pytest.fixture
def supervise(db: Database, worker_environment: None) -> Supervise:
    """`async with supervise({"q": 2}, command, check_seconds=1) as supervisor:`"""

    @asynccontextmanager
    async def start(
        slots: dict[str, int], command: Any = None, host: str = "here", **settings: Any
    ) -> AsyncIterator[Supervisor]:
        chosen = SupervisorSettings(**(FAST | settings))
        async with Supervisor(db, host, slots, command or worker_command(), chosen) as supervisor:
            yield supervisor

    return start


async def statuses(db: Database) -> dict[str, str]:
    return {row["component"]: row["status"] for row in await db.health.get_all_workers()}


async def row_of(db: Database, component: str) -> dict[str, Any]:
    row = await db.fetch_one("SELECT * FROM health WHERE component = %s", [component])
    assert row is not None, f"{component} has no row"
    return row


async def status_of(db: Database, status: str, component: str = SLOT) -> bool:
    return (await statuses(db)).get(component) == status


async def enqueue(db: Database, task_type: str, queue: str = "q", **params: Any) -> UUID:
    [made] = await db.tasks.enqueue([NewTask(task_type=task_type, queue=queue, params=params)])
    return made.id


async def ended(db: Database, task: UUID) -> dict[str, Any] | None:
    return await db.fetch_one(
        "SELECT * FROM tasks WHERE id = %s AND status NOT IN ('Queued', 'In Progress')", [task]
    )


async def kinds(db: Database, kind: str) -> list[dict[str, Any]]:
    """All events of a kind, oldest first."""
    return await db.fetch("SELECT * FROM shiftboss.events WHERE kind = %s ORDER BY id", [kind])
