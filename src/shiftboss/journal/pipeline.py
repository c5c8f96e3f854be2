"""The pipeline: stages over the database and the AI router. Each method may be repeated at any time.

    entry:  data_structuring → content_analysis → vector_generation
    user:   contextual_processing → cross_entry_analysis → insight_generation

The first three work on one entry; the last three on all entries of a user, once those are analysed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from shiftboss.ai import AI
from shiftboss.db import Database
from shiftboss.journal.analysis import ANALYSIS
from shiftboss.journal.context import CONTEXTS, context_results, reference_result
from shiftboss.journal.cross_entry import analyse
from shiftboss.journal.entry import Entry, Result, digest
from shiftboss.journal.history import History, Moment
from shiftboss.journal.insights import generate
from shiftboss.journal.naming import with_mentions
from shiftboss.journal.spool import Spool
from shiftboss.journal.steps import Stage, advance
from shiftboss.journal.structuring import STRUCTURING
from shiftboss.journal.vectors import VECTORS
from shiftboss.model.errors import UsageError

ENTRY_STAGES = {stage.name: stage for stage in (STRUCTURING, ANALYSIS, VECTORS)}
USER_STAGES = ("contextual_processing", "cross_entry_analysis", "insight_generation")
STEP_STAGE = {step.name: stage for stage in ENTRY_STAGES.values() for step in stage.steps}
STEPS = (*STEP_STAGE, "cross_reference_embedding", *CONTEXTS)  # every result of an entry, in order
INDEXED = 256
CROSS_ENTRY_VERSION = 1


class Pipeline:
    def __init__(self, db: Database, ai: AI, spool: Spool | None = None) -> None:
        self._journal = db.journal
        self._ai = ai
        self._spool = spool or Spool()

    async def run_stage(self, stage: str, entry_id: UUID) -> dict[str, Any]:
        """One entry through one stage, and through the stages before it as far as they are not done."""
        await self._spool.flush(self._journal.store_results)
        entry = await self.entry(entry_id)
        new: list[str] = []
        for name, part in ENTRY_STAGES.items():
            entry, fresh = await self._advance(entry, part)
            new += fresh
            if name == stage:
                break
        else:
            raise UsageError(f"there is no stage {stage!r}", hint=f"one of {', '.join(ENTRY_STAGES)}")
        if stage == VECTORS.name:
            await self._journal.mark_analysed(entry.id, entry.revision)
        return {"entry": entry.external_id, "revision": entry.revision, "new": new}

    async def run_step(self, step: str, entry_id: UUID) -> dict[str, Any]:
        """One result in its documented shape, made now unless it is known; what it needs is made first."""
        await self._spool.flush(self._journal.store_results)
        entry = await self.entry(entry_id)
        for stage in ENTRY_STAGES.values():
            wanted = stage is STEP_STAGE[step]
            entry, _ = await self._advance(entry, stage.until(step) if wanted else stage)
            if wanted:
                break
        return entry.results[step].document()

    async def _advance(self, entry: Entry, stage: Stage) -> tuple[Entry, list[str]]:
        progress = await advance(entry, stage, self._ai)
        await self._index(progress.fresh)
        await self._store([(entry, result) for result in progress.fresh])
        if progress.error is not None:
            raise progress.error
        entry.results.update(progress.results)
        return entry, [result.task_type for result in progress.fresh]

    async def entry(self, entry_id: UUID) -> Entry:
        rows = await self._journal.load_entries([entry_id])
        if not rows:
            raise UsageError(f"there is no journal entry {entry_id}", hint="it may have been deleted")
        return Entry.from_row(rows[0])

    async def contextual_processing(self, user: str) -> dict[str, Any]:
        """Mentions, cross-references and context of a user's entries, where their past has changed."""
        await self._spool.flush(self._journal.store_results)
        history = await self.history(user)
        await self._store_mentions(history.moments)
        references = await self._references(user, history.moments)
        contexts = await asyncio.to_thread(lambda: list(context_results(history)))
        stored = await self._store([*references, *contexts])
        await self._journal.mark_processed({str(moment.id): moment.revision for moment in history.moments})
        return {"user": user, "entries": len(history.moments), "new": stored}

    async def cross_entry_analysis(self, user: str) -> dict[str, Any]:
        history = await self.history(user)
        if not history.moments:
            return {"user": user, "new": False}
        input_hash = digest(["cross_entry_analysis", CROSS_ENTRY_VERSION, history.chain()[-1]])
        if await self._is_known(user, "cross_entry_analysis", input_hash):
            return {"user": user, "new": False}
        found = await asyncio.to_thread(analyse, history, await self._journal.relations(user))
        new = await self._journal.store_user_result(
            user, "cross_entry_analysis", input_hash, found.processed_data, round(found.confidence, 3)
        )
        return {"user": user, "new": new}

    async def insight_generation(self, user: str) -> dict[str, Any]:
        analysis = (await self._journal.user_results(user)).get("cross_entry_analysis")
        history = await self.history(user)
        if analysis is None or not history.moments:
            return {"user": user, "insights": 0, "new": False}
        input_hash = digest(["insight_generation", analysis["input_hash"], analysis["processed_data"]])
        if await self._is_known(user, "insight_generation", input_hash):
            return {"user": user, "new": False}
        # An entry that came meanwhile has no context yet; what follows its own analysis comes here again.
        latest = (await self.entry(history.moments[-1].id)).results.get("user_context")
        context = latest.processed_data["user_context"] if latest else {}
        found = await generate(history, analysis["processed_data"], context, self._ai)
        if not await self._is_known(user, "cross_entry_analysis", analysis["input_hash"]):
            return {"user": user, "new": False}  # overtaken: whoever made the newer analysis tells it better
        insights = found.processed_data["insights"]
        await self._journal.store_insights(user, insights)
        await self._journal.store_user_result(
            user, "insight_generation", input_hash, found.processed_data, round(found.confidence, 3),
            found.provider, found.model,
        )  # fmt: skip
        return {"user": user, "insights": len(insights), "new": True}

    async def history(self, user: str) -> History:
        account = await self._journal.user(user)
        if account is None:
            raise UsageError(
                f"there is no journal of {user!r}", hint="`shiftboss journal status` lists the users"
            )
        moments = [Moment.from_row(row) for row in await self._journal.history(user)]
        # In a thread, here and below: a long history takes its time, and the loop must keep beating.
        return History(user, account["preferences"], await asyncio.to_thread(with_mentions, moments))

    async def _is_known(self, user: str, task_type: str, input_hash: str) -> bool:
        known = (await self._journal.user_results(user)).get(task_type)
        return known is not None and known["input_hash"] == input_hash

    async def _store_mentions(self, moments: Iterable[Moment]) -> None:
        rows = [
            {
                "entry_id": str(moment.id),
                "revision": moment.revision,
                "mentions": [
                    {"kind": m.kind, "key": m.key, "name": m.name, "confidence": m.confidence}
                    for m in moment.mentions
                ],
            }
            for moment in moments
        ]
        await self._journal.store_mentions(rows)

    async def _references(self, user: str, moments: Iterable[Moment]) -> list[tuple[Moment, Result]]:
        """Links entries whose vectors are new, then tells every entry its best references."""
        moments = list(moments)
        await self._journal.link_entries(
            [m.id for m in moments if "cross_reference_embedding" not in m.hashes]
        )
        found: dict[UUID, list[dict[str, Any]]] = defaultdict(list)
        for row in await self._journal.references_of(user):
            reference = {"entry": row["external_id"], "similarity": round(row["similarity"], 3)}
            found[row["entry_id"]].append(reference)
        results = [(moment, reference_result(moment, found[moment.id])) for moment in moments]
        return [(m, r) for m, r in results if m.hashes.get(r.task_type) != r.input_hash]

    async def _index(self, fresh: Iterable[Result]) -> None:
        """Vectors of another length than usual need an index of their own before they arrive."""
        for result in fresh:
            if result.task_type == "embedding_generation" and len(result.vector or ()) != INDEXED:
                await self._journal.index_dimensions(len(result.vector or ()))

    async def _store(self, found: Iterable[tuple[Entry | Moment, Result]]) -> int:
        rows = [_row(owner, result) for owner, result in found]
        return await self._spool.store(self._journal.store_results, rows) if rows else 0


def _row(owner: Entry | Moment, result: Result) -> dict[str, Any]:
    return result.document() | {
        "entry_id": str(owner.id),
        "revision": owner.revision,
        "input_hash": result.input_hash,
        "provider": result.provider,
        "model": result.model,
        "vector": result.vector,
    }
