"""One router per resource; extensions bring more."""

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
    """Those of extensions come first: a path such as /workers/runs must not be taken for a worker's id."""
    return [*contributions("routes"), *(module.router for module in OWN), slots.web]
