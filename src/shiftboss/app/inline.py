"""A context for a handler that is called directly: nobody waits, nothing is reported."""

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
    """Steps of a task that runs here and now: each runs once, and nothing is kept."""

    where = None

    async def load(self, task: Claimed, version: str | None) -> Loaded:
        return Loaded()

    async def store(self, step: Step) -> None:
        """There is no later attempt."""

    async def emit(self, part: Part) -> None:
        """Nobody reads the stream of a task that is called directly."""

    async def flush(self, lease: int) -> None: ...


def answer(wanted: Key) -> Recorded:
    """A sleep of a task that runs here and now is over at once; nobody sends it an event."""
    if wanted[0] == "event":
        raise UsageError(
            f"nothing sends the event {wanted[1]!r} to a task that is called directly",
            hint="enqueue the task; in a test, Kit.open(app) gives you a queue",
        )
    return Recorded("done")


class InlineContext(Context):
    """For an `async def` handler: steps run, sleeps are over at once, child tasks are called directly."""

    async def _wait(self, wanted: Key, **terms: Any) -> Recorded:
        return answer(wanted)

    async def _child(self, key: Key, call: Any, task: Any) -> Any:
        return await _call(call.handler, call.handler.bind(task.params))


class InlineSyncContext(SyncContext):
    """The same for a `def` handler."""

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
    """What a worker would hold for this handler, made here."""
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
    """None for a handler that does not ask for one."""
    if not handler.wants_context:
        return None
    claimed, steps = inline_claim(handler), InlineSteps()
    if handler.mode == "async":
        return InlineContext(claimed, None, ignore, steps=steps)
    context = InlineSyncContext(claimed, None, ignore, steps=steps)
    context.wait = drive
    return context


def ignore(lease: int, id: UUID, percent: int, message: str | None) -> None:
    """Progress that nobody looks at."""
