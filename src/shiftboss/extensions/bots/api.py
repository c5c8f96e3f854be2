"""HTTP API of the directory of places."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import FilterText, Limit, Out, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.bots.places import Places

router = make_router("places")


class Place(Out):
    id: UUID
    city: str
    name: str
    category: str | None
    confidence: float | None
    status: Literal["candidate", "verified", "rejected"]
    lat: float
    lon: float
    address: str | None
    phone: str | None
    website: str | None
    opening_hours: str | None
    checks: dict[str, Any]
    created_at: datetime
    seen_at: datetime
    classified_at: datetime | None
    checked_at: datetime | None


@router.get("/places")
async def places(
    admin: At,
    who: Caller,
    city: FilterText = None,
    category: FilterText = None,
    status: Literal["candidate", "verified", "rejected"] | None = None,
    after: UUID | None = None,
    limit: Limit = 50,
) -> list[Place]:
    """List places in order of id. `after` is the last id of the previous page."""
    rows = await admin.db.family(Places).list_places(
        city=city, category=category, status=status, after=after, limit=limit
    )
    return [Place.model_validate(row) for row in rows]
