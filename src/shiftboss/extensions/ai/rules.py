"""Alert rules for AI providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiftboss.extensions.ai.alerts import section
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.model.alert import Found, Rule

if TYPE_CHECKING:
    from shiftboss.db import Database


async def budgets(db: Database, threshold: float) -> list[Found]:
    """Return the providers that have spent at least this share of their daily budget."""
    found = []
    for row in await db.family(AIEngine).ai_totals():
        used = float(row["spend_today"] / row["daily_budget"]) if row["daily_budget"] else 0.0
        if used >= threshold:
            name, budget = row["provider"], f"{section(row['provider'])}.daily_budget"
            message = f"{name} has spent {used:.0%} of its {budget} of ${row['daily_budget']:.2f} today"
            found.append(Found(name, message, "shiftboss providers", used))
    return found


async def circuits(db: Database, threshold: float) -> list[Found]:
    """Return the providers whose circuit is open."""
    return [
        Found(
            row["provider"],
            f"the circuit of {row['provider']} is open: {row['last_error'] or 'no error recorded'}",
            "shiftboss providers",
            2.0,
        )
        for row in await db.family(AIEngine).ai_totals()
        if row["circuit"] == "open"
    ]


RULES = (
    Rule(
        name="budget_low",
        summary="An AI provider has spent most of its daily budget",
        threshold=0.8,
        find=budgets,
        expression="max by (provider) (ai_budget_used_ratio) >= $threshold",
        panel="max by (provider) (ai_budget_used_ratio)",
        unit="percentunit",
    ),
    Rule(
        name="circuit_open",
        summary="The circuit of an AI provider is open after failed calls",
        threshold=1,
        find=circuits,
        expression="max by (provider) (ai_circuit_state) > $threshold",
        panel="max by (provider) (ai_circuit_state)",
    ),
)
