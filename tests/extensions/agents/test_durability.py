"""Agents of pydantic-ai as tasks, with its own test models."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelMessage, ModelResponse, ModelRetry, RunContext, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from shiftboss import App, Context, SyncContext
from shiftboss.db import Database
from shiftboss.extensions.agents import ShiftbossDurability
from shiftboss.extensions.agents.durability import StepTerms
from shiftboss.kit import Kit
from shiftboss.model.task import NewTask

EXAMPLE = Path(__file__).parents[3] / "examples" / "agent"


@pytest.fixture
def app() -> App:
    return App("agents")


@pytest.fixture
async def kit(app: App, database_url: str) -> AsyncIterator[Kit]:
    async with Kit.open(app, database_url) as kit:
        yield kit


async def names(kit: Kit, id: Any) -> list[str]:
    return [f"{step['name']}#{step['ordinal']}" for step in await kit.db.steps.of(id)]


async def test_requests_and_tool_calls_are_steps_and_text_streams(app: App, kit: Kit) -> None:
    asked: Counter[str] = Counter()
    agent = Agent(TestModel(), name="helper", capabilities=[ShiftbossDurability()])

    @agent.tool_plain
    def search(topic: str) -> list[str]:
        asked[topic] += 1
        return [topic]

    @app.task(max_attempts=3)
    async def research(ctx: Context) -> str:
        output = (await agent.run("owls")).output
        if ctx.attempt < 3:
            raise RuntimeError("once more")
        return output

    handle = await research.enqueue()
    await kit.drain()
    assert await handle.result(5) == '{"search":["a"]}'
    assert asked == {"a": 1}
    assert await names(kit, handle.id) == [
        "helper__model.request_stream#1",
        "helper__function_toolset__<agent>.call_tool:search pyd_ai_tool_call_id__search#1",
        "helper__model.request_stream#2",
    ]
    parts = [part async for part in handle.stream()]
    assert "".join(part.part for part in parts if part.discard is None) == '{"search":["a"]}'
    assert len(parts) > 1, "piece by piece"


class Report(BaseModel):
    title: str
    pages: int


async def test_types_parallel_tools_and_retries_of_a_model(app: App, kit: Kit) -> None:
    requests: list[int] = []
    calls: Counter[str] = Counter()

    def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        requests.append(len(messages))
        if len(messages) == 1:
            both = [ToolCallPart("count", {"what": what}) for what in ("owls", "mice")]
            return ModelResponse(parts=both)
        if len(messages) == 3:
            return ModelResponse(parts=[ToolCallPart("fussy", {})])
        if len(messages) == 5:
            return ModelResponse(parts=[ToolCallPart("fussy", {})])
        tool = info.output_tools[0].name
        return ModelResponse(parts=[ToolCallPart(tool, {"title": "Owls", "pages": 7})])

    agent = Agent(
        FunctionModel(think),
        name="counter",
        output_type=Report,
        deps_type=dict,
        capabilities=[ShiftbossDurability(stream=False, tool_step=StepTerms(retry=2))],
    )

    @agent.tool
    async def count(ctx: RunContext[dict[str, int]], what: str) -> int:
        calls[what] += 1
        await asyncio.sleep(0.02 if what == "owls" else 0)  # they end in the other order
        return ctx.deps[what]

    @agent.tool_plain(retries=2)
    def fussy() -> str:
        calls["fussy"] += 1
        if calls["fussy"] == 1:
            raise ModelRetry("ask again")
        return "fine"

    @app.task(max_attempts=2)
    async def write(ctx: Context) -> Report:
        result = await agent.run("Count", deps={"owls": 2, "mice": 9})
        if ctx.attempt == 1:
            raise RuntimeError("once more")
        return result.output

    handle = await write.enqueue()
    await kit.drain()
    assert await handle.result(5) == Report(title="Owls", pages=7)
    assert requests == [1, 3, 5, 7]
    assert calls == {"owls": 1, "mice": 1, "fussy": 2}
    steps = {step["name"].rpartition(":")[2].split()[0]: step for step in await kit.db.steps.of(handle.id)}
    assert steps["count"]["state"] == "done"


async def test_a_request_that_fails_is_tried_again_and_then_by_the_next_attempt(app: App, kit: Kit) -> None:
    tries: list[int] = []

    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tries.append(1)
        if len(tries) < 4:
            raise ConnectionError("the provider hung up")
        return ModelResponse(parts=[TextPart("at last")])

    terms = StepTerms(retry=2)
    durable = ShiftbossDurability[None](stream=False, model_step=terms)
    agent = Agent(FunctionModel(fail), name="patient", capabilities=[durable])

    @app.task(max_attempts=3)
    async def ask(ctx: Context) -> str:
        return f"{(await agent.run('Well?')).output} in attempt {ctx.attempt}"

    handle = await ask.enqueue()
    await kit.drain()
    assert await handle.result(5) == "at last in attempt 2"
    assert len(tries) == 4


async def test_outside_of_a_task_and_inside_of_a_step_an_agent_runs_as_usual(app: App, kit: Kit) -> None:
    agent = Agent(TestModel(custom_output_text="Hello"), name="guest", capabilities=[ShiftbossDurability()])
    assert (await agent.run("Hello?")).output == "Hello"

    @app.task()
    async def ask(ctx: Context) -> str:
        async def whole() -> str:
            return (await agent.run("Hello?")).output

        return await ctx.step("the whole run", whole)

    @app.task(max_attempts=1)
    def plainly(ctx: SyncContext) -> str:
        return agent.run_sync("Hello?").output

    handle, plain = await ask.enqueue(), await plainly.enqueue()
    await kit.drain()
    assert await handle.result(5) == "Hello"
    assert await names(kit, handle.id) == ["the whole run#1"]
    assert "an agent needs an async handler" in (await plain.look())["error_message"]


@pytest.mark.timeout(180)
async def test_the_example_survives_kill_9(
    db: Database, database_url: str, tmp_path: Path, eventually: Any
) -> None:
    bill = tmp_path / "bill.txt"
    environment = os.environ | {
        "SHIFTBOSS_DATABASE_URL": database_url,
        "SHIFTBOSS_DATA_DIR": str(tmp_path / "data"),
        "SHIFTBOSS_WORKER_POLL_SECONDS": "0.1",
        "BILL": str(bill),
        "PAUSE": "0.3",
    }
    command = [sys.executable, "-m", "shiftboss", "worker", "agent:app", "--id", "planner"]
    [task] = await db.tasks.enqueue(
        [NewTask(task_type="travel.plan", params={"question": "?"}, max_attempts=20)]
    )
    recorded_at_kills: list[set[str]] = []
    for city in ("Oslo", "Vienna", None):
        worker = await asyncio.create_subprocess_exec(*command, env=environment, cwd=EXAMPLE)
        if city is None:
            await eventually(lambda: ended(db, task.id), timeout=60)
            worker.terminate()
            assert await worker.wait() == 0
            break
        line = f"weather {city}"
        await eventually(lambda line=line: bill.exists() and line in bill.read_text(), timeout=60)
        worker.send_signal(signal.SIGKILL)  # in the midst of a tool call
        await worker.wait()
        recorded_at_kills.append(await recorded(db, task.id))
    found = await db.tasks.get(task.id)
    assert found is not None
    assert (
        found["result_data"] == "Lisbon: 16 degrees. Oslo: 14 degrees. Rome: 14 degrees. Vienna: 16 degrees. "
    )
    paid = Counter(bill.read_text().split("\n"))
    repeated = {what for what, times in paid.items() if times > 1}
    assert repeated == {"weather Oslo", "weather Vienna"}, "only what was under way at a kill"
    assert "Oslo" not in recorded_at_kills[0]
    assert "Lisbon" in recorded_at_kills[0]


async def recorded(db: Database, id: Any) -> set[str]:
    return {step["name"].rpartition("call-")[2] for step in await db.steps.of(id)}


async def ended(db: Database, id: Any) -> bool:
    task = await db.tasks.get(id)
    return task is not None and task["status"] not in ("Queued", "In Progress")
