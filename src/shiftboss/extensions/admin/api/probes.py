"""For machines: /metrics, /healthz, /readyz."""

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
    """Prometheus text."""
    return Response(await metrics.metrics(admin.reads), media_type=metrics.CONTENT_TYPE)


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=responses(503))
async def ready(admin: At) -> dict[str, str]:
    """The database answers and changes are listened for."""
    await admin.db.fetch_one("SELECT 1 AS one")
    if not admin.hub.running:
        raise DatabaseUnavailable("changes are not listened for")
    return {"status": "ok"}
