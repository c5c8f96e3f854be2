"""Findings of the doctor and alerts about providers."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from shiftboss.cli import findings
from shiftboss.db import Database
from shiftboss.extensions.ai.findings import providers
from shiftboss.model.settings import Settings


async def call(db: Database, outcome: str, cost: float = 0.0) -> None:
    id = uuid4()
    admission = await db.ai.admit_call(
        id, provider="openai", model="m", kind="completion", task_type="t", tokens=1, cost=cost, lease=30
    )
    assert admission.admitted
    error = "no answer" if outcome == "unavailable" else None
    await db.ai.settle_call(id, outcome, prompt_tokens=1, completion_tokens=1, cost=cost, error=error)


async def configure(db: Database, daily_budget: float | None = None) -> None:
    await db.ai.ai_configure(
        "openai", model="m", requests_per_minute=None, tokens_per_minute=None, daily_budget=daily_budget,
        failure_limit=1, recovery=600,
    )  # fmt: skip


async def test_an_open_circuit(db: Database) -> None:
    await configure(db)
    await call(db, "unavailable")
    [finding] = [one for one in await findings.fleet(db) if "circuit of openai is open" in one.message]
    assert finding.level == "warning"
    assert "no answer" in finding.message


async def test_a_spent_budget(db: Database) -> None:
    await configure(db, daily_budget=1.0)
    await call(db, "ok", cost=1.0)
    [finding] = [finding for finding in await findings.fleet(db) if finding.level == "warning"]
    assert "ai.openai.daily_budget" in finding.message


async def test_a_billed_model_without_prices(db: Database, tmp_path: Path) -> None:
    models = {
        "free": {"deployments": [{"provider": "ollama", "model": "llama3.2"}]},
        "priced": {"deployments": [{"model": "m"}], "prompt_cost": 1.0},
        "unpriced": {"deployments": [{"model": "m", "base_url": "http://127.0.0.1:9/v1"}]},
    }
    found = await providers(db, Settings.load({}, tmp_path).changed("ai", models=models))
    [warning] = [one for one in found if one.level == "warning"]
    assert "the model unpriced has no prices" in warning.message
    assert "ai.models.unpriced.prompt_cost" in (warning.advice or "")
