"""A whole fleet holds no transaction open: not to lead, not to supervise, not to listen."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask

# A transaction of several statements is idle for a moment between them; only what stays so is of interest.
IDLE = """
SELECT pid, state, query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
AND state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '500 milliseconds'
"""


@asynccontextmanager
async def up(url: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    env = {
        "SHIFTBOSS_DATABASE_URL": url,
        "SHIFTBOSS_DATA_DIR": str(folder),
        "SHIFTBOSS_COORDINATOR_PORT": "0",
        "SHIFTBOSS_SUPERVISOR_CHECK_SECONDS": "0.5",
        "SHIFTBOSS_LEADER_LEASE_SECONDS": "2",
        "PYTHONPATH": "src",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shiftboss", "up", "--workers", "1", "--port", "0"),
        env=os.environ | env,
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.timeout(120)
async def test_nobody_is_idle_in_transaction_while_a_fleet_runs(
    db: Database, database_url: str, tmp_path: Path, eventually: Any
) -> None:
    async with up(database_url, tmp_path) as process:
        await eventually(lambda: _names(db), timeout=60)
        assert len(await _names(db)) == 2
        renewals: set[Any] = set()

        async def observed() -> bool:
            """Several terms of both leases, with work to do meanwhile."""
            await db.tasks.enqueue([NewTask(task_type="echo")])
            assert await db.fetch(IDLE) == []
            renewals.update(row["expires_at"] for row in await db.leases.all())
            return len(renewals) >= 12

        await eventually(observed, timeout=60)
        assert len(await db.events.latest(kind="leader.elected")) == 1
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 40) == 0
    assert await db.leases.all() == []


async def _names(db: Database) -> list[str]:
    names = [row["name"] for row in await db.leases.all()]
    return names if len(names) == 2 else []
