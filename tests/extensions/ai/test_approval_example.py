"""The example of an agent that asks a person: it streams, waits for an answer, and goes on."""

from __future__ import annotations

from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.model.access import Principal, Role
from shiftboss.model.settings import Settings
from shiftboss.operations import Operations
from tests.examples.test_frameworks import example
from tests.extensions.ai.conftest import ProtocolServer

ME = Principal("ann", Role.OPERATOR)


@pytest.fixture(autouse=True)
def _settings(database_url: str, server: ProtocolServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setenv("SHIFTBOSS_AI_OPENAI_API_KEY", "k")
    monkeypatch.setenv("SHIFTBOSS_AI_OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("SHIFTBOSS_AI_PROVIDERS", '["openai"]')


async def test_a_draft_is_streamed_rejected_written_again_and_approved(
    db: Database, server: ProtocolServer, eventually: Any
) -> None:
    server.answers("Click on Forgot password.")
    agent = example("approval/agent.py")
    operations = Operations(db, Settings.load())
    async with agent.app, agent.app.worker():
        handle = await agent.answer.enqueue("How do I reset my password?")

        async def asked(name: str) -> bool:
            return [one["name"] for one in await db.steps.approvals()] == [name]

        await eventually(lambda: asked("approval 1"), timeout=60)
        await operations.answer(ME, handle.id, {"ok": False, "comment": "be kinder"})
        await eventually(lambda: asked("approval 2"), timeout=60)
        await operations.answer(ME, handle.id, {"ok": True})
        assert await handle.result(timeout=60) == "Click on Forgot password."
        parts = [part async for part in handle.stream()]
    assert [part for part in parts if part.discard is not None] == [], "the drafts are steps: both stay valid"
    assert "".join(part.part for part in parts) == "Click on Forgot password." * 2
    asked_for = [body["messages"][-1]["content"] for body in server.bodies()]
    assert ["be kinder" in text for text in asked_for] == [False, True]
