"""One router per resource."""

from fastapi import APIRouter

from shiftboss.admin.api import (
    access,
    events,
    journal,
    overview,
    places,
    probes,
    providers,
    queues,
    runs,
    schedules,
    slots,
    tasks,
    vectorizers,
    workers,
)

# Runs come before workers: /workers/runs is no worker's id.
ROUTERS: tuple[APIRouter, ...] = (
    runs.router,
    overview.router,
    tasks.router,
    workers.router,
    slots.router,
    slots.web,
    queues.router,
    events.router,
    providers.router,
    schedules.router,
    vectorizers.router,
    journal.router,
    places.router,
    access.router,
    probes.router,
)
