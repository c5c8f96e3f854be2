"""Queues with their depth, age, pauses, limits and scaling; weights of tenants; priority ageing."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from shiftboss.db.insights.rows import QueueRow
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Done, In, Out, PathName, Text, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.leader.autoscaler import stored_autoscale
from shiftboss.model.settings import AutoscaleSettings

router = make_router("queues")
fairness = make_router("fairness")


class Queue(QueueRow):
    """A queue with its depth, age, pause and limits."""


class Pause(In):
    reason: Text | None = None


class Limits(In):
    """Limits for the whole fleet. Without any value, the limits are removed."""

    max_running: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(default=None, examples=[10])
    rate: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    rate_seconds: Annotated[float, Field(gt=0.001, le=86_400)] = 60.0
    rate_per: Literal["all", "key", "tenant"] = Field(
        default="all", description="key, tenant: the rate applies to each concurrency key or tenant"
    )


@router.get("/queues")
async def queues(admin: At, who: Caller) -> list[Queue]:
    """List all queues that have tasks, workers, a pause or a limit."""
    return await admin.reads.insights.fleet.queues()


@router.post("/queues/{name}/pause")
async def pause(name: PathName, admin: At, who: Caller, body: Pause | None = None) -> Done:
    """Pause a queue. Its waiting tasks are not claimed."""
    changed = await admin.commands.pause_queue(who, name, body.reason if body else None)
    return Done(changed=[name] if changed else [])


@router.post("/queues/{name}/resume")
async def resume(name: PathName, admin: At, who: Caller) -> Done:
    """Resume a queue."""
    return Done(changed=[name] if await admin.commands.resume_queue(who, name) else [])


class Autoscale(In):
    """Settings of the autoscaler. Omitted keys keep their values; null restores the default."""

    enabled: bool | None = None
    min_workers: Annotated[int, Field(ge=0, le=10_000)] | None = None
    max_workers: Annotated[int, Field(ge=1, le=10_000)] | None = Field(default=None, examples=[20])
    target_queue_depth: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    scale_up_threshold: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    scale_down_threshold: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    cooldown_seconds: Annotated[float, Field(ge=0, le=1_000_000)] | None = None
    max_age_seconds: Annotated[float, Field(gt=0, le=1_000_000_000)] | None = None
    every_seconds: Annotated[float, Field(gt=0, le=1_000_000)] | None = None


@router.get("/autoscale")
async def autoscale(admin: At, who: Caller) -> list[AutoscaleSettings]:
    """List the autoscaler settings of all queues that have some."""
    return await stored_autoscale(admin.db)


@router.put("/queues/{name}/autoscale")
async def set_autoscale(name: PathName, given: Autoscale, admin: At, who: Caller) -> AutoscaleSettings:
    """Set how the leader scales the workers of a queue."""
    keys = given.model_dump(exclude_unset=True)
    return await admin.commands.set_autoscale(who, name, keys)


@router.put("/queues/{name}/limits")
async def limit(name: PathName, limits: Limits, admin: At, who: Caller) -> Done:
    """Limit the concurrent tasks of a queue and the rate at which they start."""
    period = timedelta(seconds=limits.rate_seconds) if limits.rate else None
    await admin.commands.limit_queue(
        who, name, limits.max_running, limits.rate, period, rate_per=limits.rate_per
    )
    return Done(changed=[name])


class Tenant(Out):
    name: str
    weight: float
    set: bool = Field(description="false: it has the default weight")


class Weight(In):
    weight: Annotated[float, Field(ge=0.001, le=1_000_000)] = Field(examples=[3])


class Ageing(In):
    every_seconds: Annotated[float, Field(ge=1, le=31_536_000)] | None = Field(
        default=None, description="period after which the priority of a waiting task rises by 1; null: off"
    )


@fairness.get("/tenants")
async def tenants(admin: At, who: Caller) -> list[Tenant]:
    """List all tenants that have a weight or had tasks recently."""
    return [Tenant.model_validate(row) for row in await admin.reads.fairness.tenants()]


@fairness.put("/tenants/{name}")
async def set_weight(name: PathName, given: Weight, admin: At, who: Caller) -> Done:
    """Set the weight of a tenant. Weight 2 gets twice as many tasks as weight 1."""
    changed = await admin.commands.set_tenant_weight(who, name, given.weight)
    return Done(changed=[name] if changed else [])


@fairness.delete("/tenants/{name}")
async def reset_weight(name: PathName, admin: At, who: Caller) -> Done:
    """Reset the weight of a tenant to 1."""
    return Done(changed=[name] if await admin.commands.set_tenant_weight(who, name, None) else [])


@fairness.get("/ageing")
async def ageing(admin: At, who: Caller) -> Ageing:
    """Return the setting of priority ageing."""
    every = await admin.db.fairness.ageing()
    return Ageing(every_seconds=None if every is None else every.total_seconds())


@fairness.put("/ageing")
async def set_ageing(given: Ageing, admin: At, who: Caller) -> Ageing:
    """Turn priority ageing on or off. It prevents the starvation of tasks with a low priority."""
    every = None if given.every_seconds is None else timedelta(seconds=given.every_seconds)
    await admin.commands.set_ageing(who, every)
    return given
