"""AI calls of workers without a database: admitted and settled by their coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shiftboss import App, Context
from shiftboss.db import Database
from shiftboss.extensions.ai.remote import answer
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.runtime import Worker

from .conftest import ProtocolServer
from .test_steps import COST, USAGE, WATCH, booked, watched

app = App("fed")


@app.task(max_attempts=2)
async def agent(ctx: Context) -> str:
    async def ask() -> str:
        return (await ctx.ai.complete("Who?", model="openai", cache=False)).text

    name = await ctx.step("ask", ask)
    if ctx.attempt == 1:
        raise RuntimeError("after the step")
    return f"{name} {(await ctx.ai.complete('And who?', model='openai')).text}"


async def test_a_step_and_what_its_call_cost_travel_in_one_message(
    db: Database, server: ProtocolServer, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    server.answers("Minka", usage=USAGE)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    await db.execute(WATCH)
    settings = CoordinatorSettings(port=0, require_token=False, poll_seconds=0.2)
    can = Capabilities(task_types=["fed.agent"], max_concurrent_tasks=2)
    async with Coordinator(db, settings, None) as coordinator:
        source = CoordinatorSource([coordinator.address], settings)
        worker = Worker(source, app.handlers, Member(id="f1", capabilities=can), WorkerSettings())
        async with worker:
            await app.use(db)
            handle = await agent.enqueue()
            assert await asyncio.wait_for(handle.result(), 30) == "Minka Minka"
    await app.close()
    assert len(server.requests()) == 2, "the recorded answer was not bought again"
    assert await booked(db, handle.id) == [("ok", pytest.approx(COST), 500)] * 2
    found = await watched(db)
    assert found["steps"] == found["ai_calls"][:1], "the step and its call: one transaction"


async def test_a_fed_worker_changes_no_limits(db: Database) -> None:
    terms = {
        "model": "m",
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "failure_limit": 5,
        "recovery": 30,
    }
    await answer(db, {"call": "ai_configure", "provider": "openai", **terms, "daily_budget": 1})
    await answer(db, {"call": "ai_configure", "provider": "openai", **terms, "daily_budget": 1000})
    [row] = await db.ai.ai_provider_status()
    assert float(row["daily_budget"]) == 1
    with pytest.raises(UsageError, match="has no call"):
        await answer(db, {"call": "set_ai_limit"})
