"""The context of a handler that is called directly, without a queue: nothing is stored or reported."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from shiftboss.model.errors import UsageError
from shiftboss.model.step import Key, Loaded, Part, Recorded, Step
from shiftboss.model.task import Claimed, Priority, new_id
from shiftboss.worker.blocking import SyncContext, drive
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handler


class InlineSteps:
    """The steps of a directly called task: each runs once, and no result is stored."""

    where = None

    async def load(self, task: Claimed, version: str | None) -> Loaded:
        return Loaded()

    async def store(self, step: Step) -> None:
        """Discard the result, because there is no later attempt."""

    async def emit(self, part: Part) -> None:
        """Discard the part, because a directly called task has no stream."""

    async def flush(self, lease: int) -> None: ...


def answer(wanted: Key) -> Recorded:
    """End a sleep immediately, and reject a wait for an event: nothing can send one."""
    if wanted[0] == "event":
        raise UsageError(
            f"a task that is called directly cannot wait for the event {wanted[1]!r}",
            hint="enqueue the task; in a test, use Kit.open(app)",
        )
    return Recorded("done")


class InlineContext(Context):
    """The context of an `async def`: steps run, sleeps end immediately, child tasks are called directly."""

    async def _wait(self, wanted: Key, **terms: Any) -> Recorded:
        return answer(wanted)

    async def _child(self, key: Key, call: Any, task: Any) -> Any:
        return await _call(call.handler, call.handler.bind(task.params))


class InlineSyncContext(SyncContext):
    """The same as InlineContext, for a `def` handler."""

    async def _wait(self, wanted: Key, **terms: Any) -> Recorded:
        return answer(wanted)

    async def _child(self, key: Key, call: Any, task: Any) -> Any:
        work = _call(call.handler, call.handler.bind(task.params))
        if call.handler.mode != "async":
            return await work
        with ThreadPoolExecutor(1) as pool:  # this thread may have a running event loop
            return pool.submit(asyncio.run, work).result()


async def _call(handler: Handler, arguments: dict[str, Any]) -> Any:
    context = inline_context(handler)
    value = handler.function(*([context] if context else []), **arguments)
    return await value if handler.mode == "async" else value


def inline_claim(handler: Handler, params: dict[str, Any] | None = None) -> Claimed:
    """Build the claim that a worker would have for this handler."""
    now = datetime.now(UTC)
    return Claimed(
        id=new_id(),
        lease=0,
        task_type=handler.name,
        params=params or {},
        attempt=1,
        max_attempts=handler.max_attempts or 3,
        queue=handler.queue or "default",
        priority=handler.priority or Priority.NORMAL,
        tenant=None,
        timeout=handler.timeout,
        deadline=None,
        created_at=now,
        ready_at=now,
        started_at=now,
        lane=0,
        run_id=None,
        metadata=None,
    )


def inline_context(handler: Handler) -> Context | None:
    """Return a context for the handler, or None if it does not take one."""
    if not handler.wants_context:
        return None
    claimed, steps = inline_claim(handler), InlineSteps()
    if handler.mode == "async":
        return InlineContext(claimed, None, ignore, steps=steps)
    context = InlineSyncContext(claimed, None, ignore, steps=steps)
    context.wait = drive
    return context


def ignore(lease: int, id: UUID, percent: int, message: str | None) -> None:
    """Discard progress reports."""
