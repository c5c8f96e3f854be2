"""Endpoints for monitoring: /metrics, /healthz, /readyz."""

from __future__ import annotations

from fastapi import APIRouter, Response

from shiftboss.extensions.admin import metrics
from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.model.errors import DatabaseUnavailable

router = APIRouter(tags=["probes"])


@router.get("/metrics", response_class=Response, responses=responses())
async def scrape(admin: At, who: Caller) -> Response:
    """Return the metrics in the Prometheus text format."""
    return Response(await metrics.metrics(admin.reads), media_type=metrics.CONTENT_TYPE)


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """Check that the process responds."""
    return {"status": "ok"}


@router.get("/readyz", responses=responses(503))
async def ready(admin: At) -> dict[str, str]:
    """Check that the database responds and that the service receives live changes."""
    await admin.db.fetch_one("SELECT 1 AS one")
    if not admin.hub.running:
        raise DatabaseUnavailable("the service does not receive live changes")
    return {"status": "ok"}
