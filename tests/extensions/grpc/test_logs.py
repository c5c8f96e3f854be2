"""Logs of tasks whose worker has no database."""

from __future__ import annotations

import logging
import time
from typing import Any

from shiftboss.db import Database
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.runtime import Worker

from .conftest import registration

shop = logging.getLogger("shop")


async def test_a_worker_without_a_database_keeps_its_logs(coordinator: Coordinator, db: Database) -> None:
    handlers = Handlers()

    @handlers.task("talk")
    async def talk() -> None:
        shop.warning("far away")

    source = CoordinatorSource([coordinator.address], CoordinatorSettings())
    member = Member(id="w1", capabilities=Capabilities(task_types=["talk"], max_concurrent_tasks=2))
    async with Worker(source, handlers, member, WorkerSettings(poll_seconds=0.2, beat_seconds=0.5)):
        [(id, *_)] = await db.tasks.enqueue([NewTask(task_type="talk")])
        rows = [row async for row in db.logs.follow(id)]
    assert [(row["attempt"], row["level"], row["message"]) for row in rows] == [(1, "warning", "far away")]


async def test_lines_about_tasks_of_others_are_left_out(stub: Any, db: Database) -> None:
    answer = await stub.RegisterWorker(registration())
    [(id, *_)] = await db.tasks.enqueue([NewTask(task_type="t")])
    await db.workers.register(Member(id="other"))
    [task] = await db.tasks.claim("other", 1)
    line = pb.LogLine(
        held=pb.Held(task_id=str(id), lease=task.lease),
        attempt=1,
        at_us=int(time.time() * 1e6),
        message="forged",
    )
    await stub.ReportLogs(pb.ReportLogsRequest(worker_id="w1", session=answer.session, lines=[line]))
    assert await db.logs.read(id) == []
