"""For machines: /metrics, /healthz, /readyz."""

from __future__ import annotations

from fastapi import APIRouter, Response

from shiftboss.admin import metrics
from shiftboss.admin.access import Caller
from shiftboss.admin.desk import At
from shiftboss.admin.problems import responses
from shiftboss.model.errors import DatabaseUnavailable

router = APIRouter(tags=["probes"])


@router.get("/metrics", response_class=Response, responses=responses())
async def scrape(desk: At, who: Caller) -> Response:
    """Prometheus text."""
    return Response(await metrics.metrics(desk.db), media_type=metrics.CONTENT_TYPE)


@router.get("/healthz")
async def alive() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses=responses(503))
async def ready(desk: At) -> dict[str, str]:
    """The database answers and changes are listened for."""
    await desk.db.fetch_one("SELECT 1 AS one")
    if not desk.hub.running:
        raise DatabaseUnavailable("changes are not listened for")
    return {"status": "ok"}
