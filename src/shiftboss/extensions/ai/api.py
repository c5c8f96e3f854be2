"""HTTP API of AI providers."""

from __future__ import annotations

from datetime import datetime

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Out, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.ai.store import AIEngine

router = make_router("providers")


class Provider(Out):
    provider: str
    model: str | None
    circuit: str
    failures: int
    reopens_at: datetime | None
    held_until: datetime | None
    requests_last_minute: int
    requests_per_minute: int | None
    tokens_last_minute: int
    tokens_per_minute: int | None
    calls_under_way: int
    calls_today: int
    errors_today: int
    tokens_today: int
    spend_today: float
    daily_budget: float | None
    latency_ms: float | None
    cache_hit_rate: float | None
    last_error: str | None
    last_error_at: datetime | None


@router.get("/providers")
async def providers(admin: At, who: Caller) -> list[Provider]:
    """List the providers that any process of the fleet has configured, with circuit, limits and spend."""
    return [Provider.model_validate(row) for row in await admin.reads.family(AIEngine).ai_provider_status()]
