"""Workers of the fleet."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from shiftboss.db import Row
from shiftboss.db.insights.rows import HeldTask, WorkerRow
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Done, Out, PathName, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.errors import NotFound

router = make_router("workers")


class Worker(WorkerRow):
    """A worker with its health, current task and today's work."""


class Held(HeldTask):
    """A task that a worker is running."""


class WorkerDetail(WorkerRow):
    """A worker with its running tasks."""

    tasks: list[Held]


class ResourceUsage(Out):
    cpu_percent: float = 0.0
    memory_mb: float = 0
    task_count: int = 0
    goroutine_count: int = 0
    """Asyncio tasks and threads of its process."""


class WorkerHealth(Out):
    """The health of one worker."""

    worker_id: str
    status: Literal["healthy", "degraded", "unhealthy"]
    last_heartbeat: datetime | None
    active_tasks: int
    processed_today: int
    error_rate: float
    avg_processing_time: float
    """Seconds."""
    resource_usage: ResourceUsage


@router.get("/worker-health")
async def worker_health(admin: At, who: Caller) -> list[WorkerHealth]:
    """List the health and today's statistics of all workers."""
    rows = await admin.reads.workers.health()
    return [WorkerHealth(**(row | {"resource_usage": _usage(row)})) for row in rows]


def _usage(row: Row) -> ResourceUsage:
    usage = row["resource_usage"]
    cpu, memory = (usage.get(name) for name in ("cpu_percent", "memory_mb"))
    return ResourceUsage(
        cpu_percent=cpu if isinstance(cpu, int | float) else 0.0,
        memory_mb=memory if isinstance(memory, int | float) else 0.0,
        task_count=row["active_tasks"],
        goroutine_count=row["goroutine_count"],
    )


@router.get("/workers")
async def workers(
    admin: At, who: Caller, status: Literal["inactive", "active", "terminated"] | None = None
) -> list[Worker]:
    """List all workers with their health, current task and today's statistics."""
    return await admin.reads.insights.fleet.workers(status=status)


@router.get("/workers/{id:path}", responses=responses(404))
async def worker(id: PathName, admin: At, who: Caller) -> WorkerDetail:
    """Return one worker with its running tasks."""
    row = await admin.db.insights.fleet.worker(id)
    if row is None:
        raise NotFound(f"worker {id!r} does not exist")
    return row


@router.post("/workers/{id:path}/pause", responses=responses(404))
async def pause(id: PathName, admin: At, who: Caller) -> Done:
    """Pause a worker. It finishes its tasks and claims no new ones."""
    await admin.commands.steer_worker(who, id, paused=True)
    return Done(changed=[id])


@router.post("/workers/{id:path}/resume", responses=responses(404))
async def resume(id: PathName, admin: At, who: Caller) -> Done:
    """Resume a worker."""
    await admin.commands.steer_worker(who, id, paused=False)
    return Done(changed=[id])


@router.post("/workers/{id:path}/drain", responses=responses(404))
async def drain(id: PathName, admin: At, who: Caller) -> Done:
    """Drain a worker. It finishes its tasks and exits."""
    await admin.commands.steer_worker(who, id, draining=True)
    return Done(changed=[id])
