"""The work of bench/failover: handlers for the fleet, and clients that enqueue.

    python bench/ha_load.py RATE      enqueue until killed, and record what was acknowledged

Each process appends lines to a file of its own in the directory that BENCH_NOTES names: what it was told
about which task, and when.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from shiftboss import Context
from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import Complete, NewTask, Report
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.source import DatabaseSource

handlers = Handlers()
SLOW = 0.05


def note(kind: str, lines: list[dict[str, Any]]) -> None:
    """Append a line with one write, so that it is never written in part."""
    path = Path(os.environ["BENCH_NOTES"]) / f"{kind}.{os.environ['BENCH_WAY']}.{os.getpid()}"
    with path.open("ab", buffering=0) as file:
        file.write(b"".join(json.dumps(line | {"at": time.time()}).encode() + b"\n" for line in lines))


@handlers.task("work", max_attempts=100)
async def work(ctx: Context, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return str(ctx.task.lease)  # which attempt this result is of


class Noting(DatabaseSource):
    """Records which reports the database has accepted."""

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        stale = await deliver(self, reports)
        done = [report for report in reports if isinstance(report.outcome, Complete)]
        taken = [
            {"id": str(report.task.id), "lease": report.task.lease}
            for report in done
            if report.task.id not in stale
        ]
        note("taken", taken)
        return stale


deliver = DatabaseSource.report
DatabaseSource.report = Noting.report  # type: ignore[method-assign]


async def enqueue(url: str, rate: float) -> None:
    async with await Database.open(url) as db:
        while True:
            tasks = [_task() for _ in range(max(1, round(rate / 10)))]
            try:
                made = await db.tasks.enqueue(tasks)
            except DatabaseError:  # unknown: it may have been stored
                await asyncio.sleep(0.1)
                continue
            note("enqueued", [{"id": str(task.id)} for task in made])
            await asyncio.sleep(0.1)


def _task() -> NewTask:
    seconds = random.uniform(0.5, 3) if random.random() < SLOW else random.uniform(0, 0.02)
    return NewTask(task_type="work", queue="q", params={"seconds": round(seconds, 3)})


if __name__ == "__main__":
    asyncio.run(enqueue(os.environ["SHIFTBOSS_DATABASE_URL"], float(sys.argv[1])))
