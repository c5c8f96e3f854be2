"""Findings of `shiftboss doctor` about AI providers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shiftboss.cli.findings import Finding
from shiftboss.extensions.ai.configure import configured
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.ai.store import AIEngine

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings


async def providers(db: Database, settings: Settings) -> list[Finding]:
    findings = []
    for row in await db.family(AIEngine).ai_provider_status():
        circuit = row.get("circuit") or row.get("state")
        if circuit == "half-open":  # the rule circuit_open reports an open circuit
            error = row.get("last_error") or "no error recorded"
            message = f"the circuit of {row['provider']} is {circuit}: {error}"
            advice = "it closes when the next call succeeds"
            command = "shiftboss providers"
            findings.append(Finding("warning", "providers", message, advice, command=command))
    ours = AISettings.of(settings)
    ready = [name for name, usable in configured(ours).items() if usable]
    return [
        *findings,
        *_unpriced(ours),
        Finding("ok", "providers", f"configured: {', '.join(ready) or 'none'}"),
    ]


def _unpriced(settings: AISettings) -> Iterator[Finding]:
    """Budgets do not limit models whose calls count as free. Ollama's calls are free."""
    for name, model in settings.models.items():
        billed = any(one.provider != "ollama" for one in model.deployments)
        if billed and not (model.prompt_cost or model.completion_cost or model.embedding_cost):
            message = f"the model {name} has no prices: its calls count as free, whatever the budget"
            advice = f"set ai.models.{name}.prompt_cost and completion_cost, in US dollars per million tokens"
            yield Finding("warning", "providers", message, advice)
