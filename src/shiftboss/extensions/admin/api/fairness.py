"""Weights of tenants, and priority ageing."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Done, In, Out, PathName, make_router
from shiftboss.extensions.admin.backend import At

router = make_router("fairness")


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


@router.get("/tenants")
async def tenants(admin: At, who: Caller) -> list[Tenant]:
    """List all tenants that have a weight or had tasks recently."""
    return [Tenant.model_validate(row) for row in await admin.reads.fairness.tenants()]


@router.put("/tenants/{name}")
async def set_weight(name: PathName, given: Weight, admin: At, who: Caller) -> Done:
    """Set the weight of a tenant. Weight 2 gets twice as many tasks as weight 1."""
    changed = await admin.commands.set_tenant_weight(who, name, given.weight)
    return Done(changed=[name] if changed else [])


@router.delete("/tenants/{name}")
async def reset_weight(name: PathName, admin: At, who: Caller) -> Done:
    """Reset the weight of a tenant to 1."""
    return Done(changed=[name] if await admin.commands.set_tenant_weight(who, name, None) else [])


@router.get("/ageing")
async def ageing(admin: At, who: Caller) -> Ageing:
    """Return the setting of priority ageing."""
    every = await admin.db.fairness.ageing()
    return Ageing(every_seconds=None if every is None else every.total_seconds())


@router.put("/ageing")
async def set_ageing(given: Ageing, admin: At, who: Caller) -> Ageing:
    """Turn priority ageing on or off. It prevents the starvation of tasks with a low priority."""
    every = None if given.every_seconds is None else timedelta(seconds=given.every_seconds)
    await admin.commands.set_ageing(who, every)
    return given
