"""Task handlers that run vectorizers on the fleet."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.vectorizer.answer import answer_queries
from shiftboss.extensions.vectorizer.run import RunResult, VectorizerRun
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.model.errors import GiveUp
from shiftboss.model.settings import Settings
from shiftboss.worker import tracking
from shiftboss.worker.batches import Batch
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.middleware import inject

TASK = "vectorizer.run"
QUESTIONS = Batch(max_size=100, max_wait=0.02)  # short, because a client waits for the answer
handlers = Handlers()
tracking.COUNT_THEMSELVES.add(TASK)


@handlers.task("vectorizer.answer", queue="vectorizer", max_attempts=3, backoff=1.0, batch=QUESTIONS)
async def answer(questions: list[int], db: Database = inject) -> list[bool | Exception]:
    """Embed queries of `ai.embed_query`, and return whether each was still open."""
    async with await AI.open(AISettings.of(Settings.load()), db) as ai:
        errors = await answer_queries(db, ai, ids=questions)
    return [GiveUp(str(errors[id])) if errors.get(id) else id in errors for id in questions]


@handlers.task(TASK, queue="vectorizer", max_attempts=3, backoff=5.0)
async def run_vectorizer(ctx: Context, vectorizer_id: int) -> dict[str, Any]:
    """Run a vectorizer for up to `vectorizer.run_seconds`. Remaining rows get another task."""
    settings = Settings.load()
    vectorizer = await ctx.db.family(Vectorizers).begin(vectorizer_id)
    if vectorizer is None:
        return asdict(RunResult())
    pending = max(await ctx.db.family(Vectorizers).pending(vectorizer_id), 1)

    def show(done: RunResult) -> None:
        ctx.progress(min(99, 100 * done.rows // pending), f"{done.rows} of {pending} rows")

    async with await AI.open(AISettings.of(settings), ctx.db) as ai:
        run = VectorizerRun(
            ctx.db,
            ai,
            vectorizer,
            tracker=tracking.current(),
            lease=VectorizerSettings.of(settings).lease,
            seconds=VectorizerSettings.of(settings).run_seconds,
            on_batch=show,
        )
        return asdict(await run())
