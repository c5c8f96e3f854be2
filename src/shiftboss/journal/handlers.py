"""The pipeline's task handlers: `shiftboss worker shiftboss.journal.handlers:handlers` runs them.

`journal.<stage>` carries an entry, or a user, through one stage. A step's own name, such as
`sentiment_analysis`, makes just that result and returns it in its documented shape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from shiftboss.ai import AI
from shiftboss.db import Database
from shiftboss.db.layout import default_data_dir
from shiftboss.journal.graph import PREFIX, QUEUE
from shiftboss.journal.pipeline import ENTRY_STAGES, STEP_STAGE, USER_STAGES, Pipeline
from shiftboss.journal.spool import Spool
from shiftboss.model.errors import DatabaseUnavailable, Defer
from shiftboss.model.settings import Settings
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handlers

TIMEOUT = 300.0
AWAY_SECONDS = 1.0

handlers = Handlers()
_pipelines: WeakKeyDictionary[Database, asyncio.Task[Pipeline]] = WeakKeyDictionary()


async def pipeline_of(ctx: Context) -> Pipeline:
    """One pipeline per process and database, opened by whoever comes first."""
    opening = _pipelines.get(ctx.db)
    if opening is None:
        opening = _pipelines[ctx.db] = asyncio.create_task(_open(ctx.db))
    try:
        return await asyncio.shield(opening)
    except BaseException:
        failed = opening.done() and (opening.cancelled() or opening.exception() is not None)
        if failed and _pipelines.get(ctx.db) is opening:  # others wait for it, too: only one clears it away
            del _pipelines[ctx.db]
        raise


async def _open(db: Database) -> Pipeline:
    settings = Settings.load()
    directory = (settings.data_dir or default_data_dir()) / "journal"
    return Pipeline(db, await AI.open(settings.ai, db), Spool(directory))


async def _patiently(ctx: Context, work: Callable[[Pipeline], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Trouble with the database is not the task's: it comes again without having spent an attempt."""
    try:
        return await work(await pipeline_of(ctx))
    except DatabaseUnavailable as error:
        raise Defer("the database is away", AWAY_SECONDS) from error


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
        return await _patiently(ctx, lambda pipeline: getattr(pipeline, name)(user_id))

    return handle


for _name in ENTRY_STAGES:
    handlers.task(PREFIX + _name, queue=QUEUE, timeout=TIMEOUT)(_stage(_name))
for _name in STEP_STAGE:
    handlers.task(_name, queue=QUEUE, timeout=TIMEOUT)(_step(_name))
for _name in USER_STAGES:
    handlers.task(PREFIX + _name, queue=QUEUE, timeout=TIMEOUT)(_user_stage(_name))
