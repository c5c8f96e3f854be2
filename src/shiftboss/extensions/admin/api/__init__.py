"""The routers of the HTTP API, one per resource. Extensions add more."""

from fastapi import APIRouter

from shiftboss.extension import contributions
from shiftboss.extensions.admin.api import (
    access,
    approvals,
    errors,
    events,
    fairness,
    hooks,
    logs,
    overview,
    probes,
    queues,
    schedules,
    slots,
    tasks,
    types,
    workers,
)

OWN = (
    overview, tasks, types, logs, errors, workers, slots, queues, fairness, events, approvals, hooks,
    schedules, access, probes,
)  # fmt: skip


def routers() -> list[APIRouter]:
    """Return all routers, extensions first, so that /workers/runs is not matched as a worker ID."""
    return [*contributions("routes"), *(module.router for module in OWN), slots.web]
