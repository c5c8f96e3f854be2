"""The card of AI providers on the overview page."""

from __future__ import annotations

from pathlib import Path

from shiftboss.extensions.admin.page.site import Card, Context, Visit
from shiftboss.extensions.ai.store import AIEngine


async def view(visit: Visit) -> Context:
    return {"providers": await visit.admin.reads.family(AIEngine).ai_provider_status()}


CARD = Card(template="providers_card.html", view=view, templates=Path(__file__).parent / "templates")
