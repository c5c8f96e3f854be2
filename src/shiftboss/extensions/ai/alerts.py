"""Alerts about spent budgets."""

from __future__ import annotations

from shiftboss.db import Database
from shiftboss.db.insights.overview import alert
from shiftboss.db.insights.rows import AlertRow
from shiftboss.extensions.ai.store import AIEngine


async def budgets(db: Database) -> list[AlertRow]:
    """Return a warning for each provider whose daily budget is spent."""
    return [
        alert(
            "warning",
            "budget_spent",
            row["provider"],
            f"{row['provider']} has spent ${row['spend_today']:.2f} of ${row['daily_budget']:.2f} today",
            f"its tasks wait until 00:00 UTC; raise {section(row['provider'])}.daily_budget to continue now",
            command="shiftboss providers",
            rule="budget_low",
        )
        for row in await db.family(AIEngine).ai_provider_status()
        if row["daily_budget"] is not None and row["spend_today"] >= row["daily_budget"]
    ]


def section(provider: str) -> str:
    """Return the settings section of a provider, or of a model's deployment."""
    model, _, deployment = provider.partition("/")
    return f"ai.models.{model}.deployments" if deployment else f"ai.{model}"
