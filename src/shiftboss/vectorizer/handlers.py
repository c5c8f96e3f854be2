"""Vectorizer work on the fleet: a task per vectorizer that has work, supervised and visible."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shiftboss.ai import AI
from shiftboss.model.settings import Settings
from shiftboss.vectorizer.run import Done, Run
from shiftboss.worker import tracking
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handlers

handlers = Handlers()


@handlers.task("vectorizer.run", queue="vectorizer", max_attempts=3, backoff=5.0)
async def run_vectorizer(ctx: Context, vectorizer_id: int) -> dict[str, Any]:
    """Work at one vectorizer for a while; what is left gets another task."""
    settings = Settings.load()
    vectorizer = await ctx.db.vectorizers.begin(vectorizer_id)
    if vectorizer is None:
        return asdict(Done())
    pending = max(await ctx.db.vectorizers.pending(vectorizer_id), 1)

    def show(done: Done) -> None:
        ctx.progress(min(99, 100 * done.rows // pending), f"{done.rows} of {pending} rows")

    async with await AI.open(settings.ai, ctx.db) as ai:
        run = Run(
            ctx.db,
            ai,
            vectorizer,
            tracker=tracking.current(),
            lease=settings.vectorizer.lease,
            seconds=settings.vectorizer.run_seconds,
            on_batch=show,
        )
        return asdict(await run())
