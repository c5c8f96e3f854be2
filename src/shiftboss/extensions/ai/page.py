"""The page of AI providers, with circuit, limits, spend, latency and cache hit rates, and their card."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shiftboss.db import Database
from shiftboss.extensions.admin.page.site import Card, Context, Page, Visit
from shiftboss.extensions.ai.configure import configured
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.model.settings import Settings


def _configured(db: Database, settings: Settings) -> asyncio.Task[dict[str, bool]]:
    """Find out once, and in a thread, because it imports the vendors' SDKs."""
    return asyncio.create_task(asyncio.to_thread(configured, AISettings.of(settings)))


async def view(visit: Visit) -> Context:
    """Return the providers that the fleet has used, and configured providers without calls."""
    engine, here = visit.admin.reads.family(AIEngine), await visit.admin.use(_configured)
    used = {row["provider"]: row for row in await engine.ai_provider_status()}
    rows = [used.get(name, {"provider": name}) | {"here": ready} for name, ready in here.items()]
    rows += [row | {"here": False} for name, row in used.items() if name not in here]
    return {"tabs": TABS, "rows": rows, "cache": await engine.ai_cache_status()}


async def card(visit: Visit) -> Context:
    return {"providers": await visit.admin.reads.family(AIEngine).ai_provider_status()}


TEMPLATES = Path(__file__).parent / "templates"
TABS = {"/providers": "Providers", "/ai/calls": "Calls", "/ai/limits": "Limits"}
PAGES = (
    Page(
        templates=TEMPLATES,
        path="/providers",
        title="AI providers",
        label="AI",
        icon="M7 18a4 4 0 0 1 0-8 5 5 0 0 1 9.7-1.5A4.5 4.5 0 0 1 17 18z",
        order=90,
        template="providers.html",
        view=view,
        every=10.0,
    ),
)
CARD = Card(template="providers_card.html", view=card, templates=TEMPLATES)
