"""Task handlers of the pipeline: `shiftboss worker shiftboss.extensions.journal.handlers:handlers` runs them.

`journal.<stage>` takes an entry, or a user, through one stage; each answer of a model is a durable step of
the task. `journal.vector_generation` takes many entries in one call. The task type of a step, such as
`sentiment_analysis`, computes only that result and returns it in its documented form.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from shiftboss.db import Database
from shiftboss.extensions.ai.engines import engine_of
from shiftboss.extensions.journal.graph import PREFIX, QUEUE
from shiftboss.extensions.journal.pipeline import ENTRY_STAGES, STEP_STAGE, USER_STAGES, Pipeline
from shiftboss.extensions.journal.store import Journal
from shiftboss.extensions.journal.vectors import VECTORS
from shiftboss.model.errors import DatabaseUnavailable, Defer
from shiftboss.worker.batches import Batch
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.middleware import inject

TIMEOUT = 300.0
AWAY = Defer("the database is unavailable", 1.0)

BATCH = Batch(max_size=64, max_wait=0.1)

handlers = Handlers()


async def _patiently(ctx: Context, work: Callable[[Pipeline], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Run the work; if the database is unavailable, defer the task without spending an attempt."""
    try:
        return await work(Pipeline(ctx.db, await engine_of(ctx.db), ctx))
    except DatabaseUnavailable as error:
        raise AWAY from error


async def vector_generation(entries: list[UUID], db: Database = inject) -> list[dict[str, Any] | Exception]:
    """Embed many entries with one provider call."""
    try:
        ends = await Pipeline(db, await engine_of(db), patient=True).vectorise(entries)
    except DatabaseUnavailable as error:
        raise AWAY from error
    return [_of_one(end) for end in ends]


def _of_one(end: dict[str, Any] | BaseException) -> dict[str, Any] | Exception:
    if isinstance(end, dict):
        return end
    if not isinstance(end, Exception):
        raise end
    return AWAY if isinstance(end, DatabaseUnavailable) else end


def _stage(name: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def handle(ctx: Context, entry_id: UUID) -> dict[str, Any]:
        return await _patiently(ctx, lambda pipeline: pipeline.run_stage(name, entry_id))

    return handle


def _step(name: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def handle(ctx: Context, entry_id: UUID) -> dict[str, Any]:
        return await _patiently(ctx, lambda pipeline: pipeline.run_step(name, entry_id))

    return handle


def _user_stage(name: str) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def handle(ctx: Context, user_id: str) -> dict[str, Any]:
        if await ctx.db.family(Journal).user(user_id) is None:  # the writer was erased while the task waited
            return {"user": user_id, "new": False, "deleted": True}
        return await _patiently(ctx, lambda pipeline: getattr(pipeline, name)(user_id))

    return handle


for _name in ENTRY_STAGES:
    if _name != VECTORS.name:
        handlers.task(PREFIX + _name, queue=QUEUE, timeout=TIMEOUT)(_stage(_name))
handlers.task(PREFIX + VECTORS.name, queue=QUEUE, timeout=TIMEOUT, batch=BATCH)(vector_generation)
for _name in STEP_STAGE:
    handlers.task(_name, queue=QUEUE, timeout=TIMEOUT)(_step(_name))
for _name in USER_STAGES:
    handlers.task(PREFIX + _name, queue=QUEUE, timeout=TIMEOUT)(_user_stage(_name))
