"""Findings of `shiftboss doctor` about AI providers."""

from __future__ import annotations

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
    ready = [name for name, usable in configured(AISettings.of(settings)).items() if usable]
    return [*findings, Finding("ok", "providers", f"configured: {', '.join(ready) or 'none'}")]
