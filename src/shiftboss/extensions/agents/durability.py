"""A capability for pydantic-ai agents that turns model requests and tool calls into steps of the task."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_ai import AgentStreamEvent, PartDeltaEvent, PartStartEvent, RunContext, TextPart, TextPartDelta
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    EventStreamHandlerId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT

from shiftboss.model.errors import UsageError
from shiftboss.model.step import StepTerms, in_step
from shiftboss.worker.blocking import SyncContext
from shiftboss.worker.context import Context, current


class ShiftbossDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes an agent durable in tasks: `Agent(model, name="...", capabilities=[ShiftbossDurability()])`.

    In a task handler, each model request and tool call is a step, whose stored result later attempts reuse.
    The text of the model is appended to the stream of the task, unless `stream` is False or you pass an
    `event_stream_handler`. Outside tasks the agent runs as usual.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Shiftboss",
        durable_unit_noun="step",
        durable_container_noun="task",
        codec=JSON_CODEC,
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        stream: bool = True,
        name: str | None = None,
        model_step: StepTerms = StepTerms(),  # noqa: B008 - a tuple
        tool_step: StepTerms = StepTerms(),  # noqa: B008
    ) -> None:
        """`models` can be chosen by key for a run; `model_step` and `tool_step` set retries and timeouts."""
        handler = event_stream_handler or (emit_text if stream else None)
        super().__init__(models=models, event_stream_handler=handler, name=name)
        self._terms = RoleBasedOperationConfig(
            model=model_step, event=StepTerms(), capability=StepTerms(), tool=tool_step
        )

    @property
    def in_durable_context(self) -> bool:
        """Whether a task runs the agent; inside a step, the agent is part of that step."""
        return current.get() is not None and in_step.get() is None

    def get_default_run_id(self) -> str | None:
        return _next_run(_context()) if self.in_durable_context else None

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    def get_durable_operation_backend(self) -> DurableOperationBackend[StepTerms]:
        return StepBackend(agent_name=self.name, config=self._terms)


class StepBackend(JournalCallableOperationBackend[StepTerms]):
    """Runs each operation of an agent as a step of the task."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepTerms,
    ) -> object:
        if isinstance(operation_id, EventStreamHandlerId):
            return await body()  # not stored: its parts are discarded when the task runs again
        if isinstance(operation_id, ToolsetCallToolId):
            name += _call_id(cache_key)
        return await _context().step(name, body, retry=config.retry, timeout=config.timeout)


async def emit_text(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
    """Append the text of a model to the stream of the task as it arrives."""
    async for event in events:
        text = ""
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            text = event.part.content
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            text = event.delta.content_delta
        if text and current.get() is not None:
            await _context().emit(text)


def _context() -> Context:
    found = current.get()
    assert found is not None, "pydantic-ai asked for a step outside of a task"
    ctx = found()
    if isinstance(ctx, SyncContext):
        raise UsageError("an agent needs an async handler", hint="write `async def` and await agent.run(...)")
    return ctx


def _call_id(cache_key: tuple[object, ...]) -> str:
    """Return the id of a tool call, so that concurrent calls get the same step names in any order."""
    run = next((part for part in cache_key if isinstance(part, RunContext)), None)
    return f" {run.tool_call_id}" if run is not None and run.tool_call_id else ""


_runs: WeakKeyDictionary[Context, count[int]] = WeakKeyDictionary()


def _next_run(ctx: Context) -> str:
    """Return a run id that depends only on the number of previous runs in this attempt."""
    return f"{ctx.id}:{next(_runs.setdefault(ctx, count(1)))}"
