"""The autoscaler with real slots: a growing queue gets more processes, an empty one fewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.leader.autoscaler import Autoscaler
from shiftboss.model.settings import AutoscaleSettings

from .conftest import Supervise, enqueue, kinds, statuses

SETTINGS = AutoscaleSettings(
    queue="q", min_workers=1, max_workers=3, target_queue_depth=1, cooldown_seconds=0
)
LAST = "worker:q:2"


async def test_a_queue_that_fills_and_drains(
    db: Database, supervise: Supervise, tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that is given up finishes what it holds first."""
    monkeypatch.setenv("SHIFTBOSS_WORKER_CONCURRENCY", "1")
    scaler = Autoscaler(db, SETTINGS)
    flags = [tmp_path / f"flag-{n}" for n in range(6)]
    for flag in flags:
        await enqueue(db, "wait_for", path=str(flag))

    async def running() -> dict[str, dict[str, Any]]:
        rows = await db.fetch("SELECT * FROM public.tasks WHERE status = 'In Progress'")
        return {row["worker_id"]: row for row in rows}

    async def everyone_works() -> bool:
        return len(await running()) == 3

    async def complete(count: int) -> bool:
        rows = await db.fetch("SELECT FROM public.tasks WHERE status = 'Complete'")
        return len(rows) == count

    async with supervise({"q": 1}):
        assert [(await scaler()).workers, (await scaler()).workers] == [2, 3]
        await eventually(everyone_works, timeout=60)
        assert set(await statuses(db)) == {"worker:q:0", "worker:q:1", LAST}

        (held,) = [row for worker, row in (await running()).items() if worker.endswith(LAST)]
        for flag in flags:
            if str(flag) != held["params"]["path"]:
                flag.touch()
        await eventually(lambda: complete(5), timeout=60)
        assert (await scaler()).workers == 2

        async def draining() -> bool:
            rows = await db.fetch("SELECT id FROM public.workers WHERE draining")
            return [row["id"] for row in rows] == [held["worker_id"]]

        await eventually(draining)
        assert [row["id"] for row in (await running()).values()] == [held["id"]]
        Path(held["params"]["path"]).touch()

        async def gone() -> bool:
            return set(await statuses(db)) == {"worker:q:0", "worker:q:1"}

        await eventually(gone, timeout=30)
        assert await complete(6)
        assert await db.fetch("SELECT FROM shiftboss.past_attempts") == []
    changes = [
        (e["details"]["before"], e["details"]["workers"]) for e in await kinds(db, "autoscale.changed")
    ]
    assert changes == [(1, 2), (2, 3), (3, 2)]
