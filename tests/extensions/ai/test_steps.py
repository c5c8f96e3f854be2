"""Calls inside of steps: what they cost is booked in the transaction that stores the step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from shiftboss import App, Context, SyncContext
from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.model.errors import TaskFailed, UsageError
from shiftboss.model.step import StepScope, in_step

from .conftest import ProtocolServer

USAGE = {"prompt_tokens": 1000, "completion_tokens": 500}
COST = 1000 * 2.5e-6 + 500 * 10e-6

#: Which transaction stored a step, and which one settled a call.
WATCH = """
CREATE TABLE watched (what text, xact xid8);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO public.watched VALUES (TG_TABLE_NAME, pg_current_xact_id()); RETURN NULL; END $$;
CREATE TRIGGER watch AFTER INSERT ON shiftboss.steps FOR EACH ROW EXECUTE FUNCTION watch();
CREATE TRIGGER watch AFTER UPDATE ON shiftboss.ai_calls FOR EACH ROW WHEN (NEW.outcome IS NOT NULL)
    EXECUTE FUNCTION watch();
"""

app = App("agents")


@app.task(max_attempts=2)
async def agent(ctx: Context, break_in: int = 0) -> str:
    async def ask() -> str:
        answer = await ctx.ai.complete("Who?", model="openai", cache=False)
        if ctx.attempt <= break_in:
            raise RuntimeError("after the call")
        return answer.text

    name = await ctx.step("ask", ask)
    if ctx.attempt == 1:
        raise RuntimeError("after the step")
    return name


@app.task(max_attempts=2)
def plain_agent(ctx: SyncContext) -> str:
    name = ctx.step("ask", lambda: str(ctx.sync_ai.complete("Who?", model="openai", cache=False).text))
    if ctx.attempt == 1:
        raise RuntimeError("after the step")
    return name


@app.task(max_attempts=2)
async def teller(ctx: Context) -> str:
    async def tell() -> str:
        return (await ctx.ai.complete("A story?", model="openai", cache=False, emit=True)).text

    story = await ctx.step("tell", tell)
    if ctx.attempt == 1:
        raise RuntimeError("after the step")
    return story


@app.task()
def plain_teller(ctx: SyncContext) -> str:
    return ctx.step("tell", lambda: "".join(ctx.sync_ai.stream("A story?", model="openai", emit=True)))


@pytest.fixture
async def worker(
    db: Database, server: ProtocolServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    server.answers("Minka", usage=USAGE)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("SHIFTBOSS_AI_OPENAI_BASE_URL", f"{server.url}/v1")
    await db.execute(WATCH)
    await app.use(db)
    async with app.worker():
        yield
    await app.close()


async def watched(db: Database) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in await db.fetch("SELECT what, xact::text::bigint AS xact FROM watched"):
        found.setdefault(row["what"], []).append(row["xact"])
    return found


async def booked(db: Database, task: UUID) -> list[tuple[str, float, int]]:
    calls = await db.ai.calls(task_id=task)
    return [(call["outcome"], float(call["cost"]), call["completion_tokens"]) for call in calls]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("task", [agent, plain_agent])
async def test_the_call_is_settled_with_the_step_and_never_made_again(
    db: Database, server: ProtocolServer, task: Any, data_dir: Path
) -> None:
    handle = await task.enqueue()
    assert await handle.result(timeout=30) == "Minka"
    assert len(server.requests()) == 1, "the second attempt found the answer"
    assert await booked(db, handle.id) == [("ok", pytest.approx(COST), 500)]
    found = await watched(db)
    assert found["steps"] == found["ai_calls"], "one transaction"


@pytest.mark.usefixtures("worker")
async def test_a_call_whose_step_fails_is_settled_all_the_same(
    db: Database, server: ProtocolServer, eventually: Any
) -> None:
    handle = await agent.enqueue(break_in=2)
    with pytest.raises(TaskFailed):
        await handle.result(timeout=30)

    async def settled() -> bool:
        return await booked(db, handle.id) == [("ok", pytest.approx(COST), 500)] * 2

    await eventually(settled)
    assert len(server.requests()) == 2
    assert "steps" not in await watched(db)


@pytest.mark.usefixtures("worker")
async def test_what_cannot_be_booked_does_not_cost_the_step_its_result(db: Database) -> None:
    await db.execute("ALTER TABLE shiftboss.ai_calls ADD CHECK (outcome <> 'ok')")
    handle = await agent.enqueue()
    assert await handle.result(timeout=30) == "Minka"
    [(outcome, _, _)] = await booked(db, handle.id)
    assert outcome is None, "its reservation counts"


async def test_nothing_but_functions_for_steps_can_be_named(db: Database) -> None:
    with pytest.raises(Exception, match="no extension stores"):
        await db.fetch("SELECT shiftboss.also_with_steps(ARRAY['{\"prune(\": [1]}'::jsonb])")


STORY = "Once upon a time there was a queue that nobody had to wait in. " * 4


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("task", [teller, plain_teller])
async def test_tokens_flow_through_the_stream_of_the_task(
    db: Database, server: ProtocolServer, task: Any
) -> None:
    server.reset()
    server.answers(STORY, usage=USAGE)
    handle = await task.enqueue()
    parts = [part async for part in handle.stream()]
    assert await handle.result(timeout=30) == STORY
    texts = [part.part for part in parts if part.discard is None]
    assert len(texts) > 1, "piece by piece"
    assert "".join(texts) == STORY, "the second attempt emitted nothing: its step is recorded"
    assert await booked(db, handle.id) == [("ok", pytest.approx(COST), 500)]


async def test_only_a_task_has_a_stream(db: Database) -> None:
    await app.use(db)
    with pytest.raises(UsageError, match="only in a task"):
        await app.ai.complete("A story?", emit=True)
    await app.close()


async def test_a_step_that_outlives_the_engine_leaves_its_spend_to_the_next(
    db: Database, server: ProtocolServer, make_settings: Any, data_dir: Path
) -> None:
    server.answers("Minka", usage=USAGE)
    scope = StepScope("ask#1", db)
    async with await AI.open(make_settings("openai"), db) as ai:
        token = in_step.set(scope)
        await ai.complete("Who?", cache=False)
        in_step.reset(token)
        [call] = await db.ai.calls()
        assert call["outcome"] is None, "it waits for its step"
    scope.end(False)
    async with await AI.open(make_settings("openai"), db):
        pass  # takes over what the former engine left on disk
    [call] = await db.ai.calls()
    assert (call["outcome"], float(call["cost"])) == ("ok", pytest.approx(COST))
