"""Real coordinators and workers as processes that are killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask

HANDLERS = """
import asyncio
from pathlib import Path
from shiftboss.worker.handlers import Handlers

handlers = Handlers()

@handlers.task("echo")
async def echo(n: int) -> int:
    return n

@handlers.task("hold")
async def hold(flag: str) -> str:
    while not Path(flag).exists():
        await asyncio.sleep(0.05)
    return "done"
"""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def launch(database_url: str, tmp_path: Path) -> Iterator[Start]:
    """Start `shiftboss` commands on the test's database; what still runs at the end is killed."""
    (tmp_path / "fleet_handlers.py").write_text(HANDLERS)
    source = str(Path(__file__).parents[3] / "src")
    running: list[subprocess.Popen[bytes]] = []

    def launch(*words: str, database: bool = True, **variables: str) -> subprocess.Popen[bytes]:
        env = os.environ | {"PYTHONPATH": source} | variables
        if database:
            env["SHIFTBOSS_DATABASE_URL"] = database_url
        process = subprocess.Popen([sys.executable, "-m", "shiftboss", *words], cwd=tmp_path, env=env)
        running.append(process)
        return process

    yield launch
    for process in running:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.timeout(180)
async def test_coordinators_and_workers_die_and_the_work_goes_on(
    db: Database, launch: Start, tmp_path: Path, eventually: Any
) -> None:
    ports = [str(free_port()), str(free_port())]
    coordinators = [launch("coordinator", "--no-token", "--port", port) for port in ports]
    where = [word for port in ports for word in ("--coordinator", f"127.0.0.1:{port}")]
    brief = {"SHIFTBOSS_WORKER_LEASE_SECONDS": "2", "SHIFTBOSS_WORKER_BEAT_SECONDS": "0.5"}

    def worker(id: str) -> subprocess.Popen[bytes]:
        return launch("worker", "fleet_handlers:handlers", "--id", id, *where, database=False, **brief)

    async def complete(count: int) -> bool:
        rows = await db.fetch("SELECT count(*) AS n FROM public.tasks WHERE status = 'Complete'")
        return bool(rows[0]["n"] == count)

    first = worker("first")
    await db.tasks.enqueue([NewTask(task_type="echo", params={"n": n}) for n in range(20)])
    await eventually(lambda: complete(20), timeout=60)

    flag = tmp_path / "flag"
    [held] = await db.tasks.enqueue([NewTask(task_type="hold", params={"flag": str(flag)})])

    async def held_by() -> str | None:
        row = await db.tasks.get(held.id)
        return row["worker_id"] if row and row["status"] == "In Progress" else None

    await eventually(held_by, timeout=30)
    coordinators[0].send_signal(signal.SIGKILL)  # the worker moves on and keeps what it holds
    await db.tasks.enqueue([NewTask(task_type="echo", params={"n": n}) for n in range(5)])
    await eventually(lambda: complete(25), timeout=60)
    assert await held_by() == "first"

    second = worker("second")
    first.send_signal(signal.SIGKILL)  # its task goes to the other

    async def reassigned() -> bool:
        return await held_by() == "second"

    await eventually(reassigned, timeout=60)
    flag.touch()
    await eventually(lambda: complete(26), timeout=30)
    row = await db.tasks.get(held.id)
    assert row
    assert (row["attempts"], row["result_data"]) == (1, "done")
    assert [event["worker_id"] for event in await db.events.latest(kind="worker.lost")] == ["first"]

    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0
    coordinators[1].send_signal(signal.SIGTERM)
    assert coordinators[1].wait(30) == 0
    left = await db.workers.get("second")
    assert left
    assert left["status"] == "inactive"
