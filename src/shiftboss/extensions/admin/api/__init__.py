"""The routers of the HTTP API, one per resource. Extensions add more."""

from fastapi import APIRouter

from shiftboss.extension import contributions
from shiftboss.extensions.admin.api import (
    access,
    errors,
    events,
    logs,
    overview,
    queues,
    schedules,
    slots,
    tasks,
    workers,
)

OWN = (overview, tasks, logs, errors, workers, slots, queues, events, schedules, access)


def routers() -> list[APIRouter]:
    """Return all routers, extensions first, so that /workers/runs is not matched as a worker ID."""
    own = [module.router for module in OWN]
    more = (tasks.types, queues.fairness, events.approvals, events.hooks, overview.probes, slots.web)
    return [*contributions("routes"), *own, *more]
