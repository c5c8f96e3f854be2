"""The pipeline: runs the stages with the database and the AI engine. All methods can be repeated.

    entry:  data_structuring → content_analysis → vector_generation
    user:   contextual_processing → cross_entry_analysis → insight_generation

The first three stages process one entry; the last three all analysed entries of a user.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.journal.analysis import ANALYSIS
from shiftboss.extensions.journal.context import CONTEXTS, context_results, reference_result
from shiftboss.extensions.journal.cross_entry import analyse
from shiftboss.extensions.journal.entry import Entry, Result, digest
from shiftboss.extensions.journal.history import History, Moment
from shiftboss.extensions.journal.insights import generate
from shiftboss.extensions.journal.naming import with_mentions
from shiftboss.extensions.journal.steps import Make, Stage, advance, durably, making
from shiftboss.extensions.journal.store import Journal
from shiftboss.extensions.journal.structuring import STRUCTURING
from shiftboss.extensions.journal.vectors import VECTORS, embedding
from shiftboss.lifecycle import Backoff
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseUnavailable, UsageError
from shiftboss.worker.context import Context

log = get_logger(__name__)

ENTRY_STAGES = {stage.name: stage for stage in (STRUCTURING, ANALYSIS, VECTORS)}
USER_STAGES = ("contextual_processing", "cross_entry_analysis", "insight_generation")
STEP_STAGE = {step.name: stage for stage in ENTRY_STAGES.values() for step in stage.steps}
STEPS = (*STEP_STAGE, "cross_reference_embedding", *CONTEXTS)  # every result of an entry, in order
INDEXED = (256, 384, 896)  # dimensions whose index a migration creates
CROSS_ENTRY_VERSION = 2
LONGEST_PAUSE = 2.0


class Pipeline:
    """Runs stages and steps. With the `ctx` of a task, paid answers are durable steps of the task.

    If `patient`, results are kept in memory until the database is available, for work without steps.
    """

    def __init__(self, db: Database, ai: AI, ctx: Context | None = None, *, patient: bool = False) -> None:
        self._journal = db.family(Journal)
        self._ai = ai
        self._make = making(ai, ctx)
        self._ctx = ctx
        self._patient = patient

    async def run_stage(self, stage: str, entry_id: UUID) -> dict[str, Any]:
        """Take an entry through a stage, and first through earlier stages that are not done."""
        if stage not in ENTRY_STAGES:
            raise UsageError(f"there is no stage {stage!r}", hint=f"use one of {', '.join(ENTRY_STAGES)}")
        entries = await self._entries([entry_id])
        return await self._through(entries[entry_id], stage, self._make) if entries else _deleted(entry_id)

    async def vectorise(self, entry_ids: Sequence[UUID]) -> list[dict[str, Any] | BaseException]:
        """Take many entries through the last stage, with one provider call for all embeddings."""
        entries = await self._entries(entry_ids)
        analysed = await self._all(entries, ANALYSIS.name, self._make)
        sound = {id: entry for id, entry in entries.items() if isinstance(analysed[id], dict)}
        ended = analysed | await self._all(sound, VECTORS.name, await embedding(sound.values(), self._ai))
        return [ended.get(id, _deleted(id)) for id in entry_ids]

    async def _all(
        self, entries: Mapping[UUID, Entry], stage: str, make: Make
    ) -> dict[UUID, dict[str, Any] | BaseException]:
        ends = (self._through(entry, stage, make) for entry in entries.values())
        return dict(zip(entries, await asyncio.gather(*ends, return_exceptions=True), strict=True))

    async def _through(self, entry: Entry, last: str, make: Make) -> dict[str, Any]:
        new: list[str] = []
        for name, part in ENTRY_STAGES.items():
            new += await self._advance(entry, part, make)
            if name == last:
                break
        if last == VECTORS.name:
            await self._journal.mark_analysed(entry.id, entry.revision)
        return {"entry": entry.external_id, "revision": entry.revision, "new": new}

    async def run_step(self, step: str, entry_id: UUID) -> dict[str, Any]:
        """Return a result in its documented form; compute it and its inputs if needed."""
        entry = await self.entry(entry_id)
        for stage in ENTRY_STAGES.values():
            wanted = stage is STEP_STAGE[step]
            await self._advance(entry, stage.until(step) if wanted else stage, self._make)
            if wanted:
                break
        return entry.results[step].document()

    async def _advance(self, entry: Entry, stage: Stage, make: Make) -> list[str]:
        """Run a stage, update the results of the entry and return the types of the new ones."""
        progress = await advance(entry, stage, make)
        await self._index(progress.fresh)
        await self._store([(entry, result) for result in progress.fresh])
        if progress.error is not None:
            raise progress.error
        entry.results.update(progress.results)
        return [result.task_type for result in progress.fresh]

    async def _entries(self, entry_ids: Sequence[UUID]) -> dict[UUID, Entry]:
        return {row["id"]: Entry.from_row(row) for row in await self._journal.load_entries(entry_ids)}

    async def entry(self, entry_id: UUID) -> Entry:
        entries = await self._entries([entry_id])
        if not entries:
            raise UsageError(f"there is no journal entry {entry_id}", hint="it may have been deleted")
        return entries[entry_id]

    async def contextual_processing(self, user: str) -> dict[str, Any]:
        """Update mentions, cross-references and contexts of entries whose past has changed."""
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
        # A new entry has no context yet; this task runs again after its analysis.
        latest = (await self.entry(history.moments[-1].id)).results.get("user_context")
        context = latest.processed_data["user_context"] if latest else {}
        make = partial(generate, history, analysis["processed_data"], context, self._ai)
        found = await durably(self._ctx, "insight_generation", input_hash, make)
        if not await self._is_known(user, "cross_entry_analysis", analysis["input_hash"]):
            return {"user": user, "new": False}  # there is a newer analysis
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
                f"there is no journal of {user!r}", hint="run `shiftboss journal status` to list writers"
            )
        moments = [Moment.from_row(row) for row in await self._journal.history(user)]
        # In a thread, since a long history takes time and would delay heartbeats.
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
        """Link entries with new vectors, and return the changed references of all entries."""
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
        """Create an index for vectors with unusual dimensions before they are stored."""
        for result in fresh:
            if result.task_type == "embedding_generation" and len(result.vector or ()) not in INDEXED:
                await self._journal.index_dimensions(len(result.vector or ()))

    async def _store(self, found: Iterable[tuple[Entry | Moment, Result]]) -> int:
        rows = [_row(owner, result) for owner, result in found]
        backoff = Backoff(maximum=LONGEST_PAUSE)
        while rows:
            try:
                return await self._journal.store_results(rows)
            except DatabaseUnavailable as error:
                if not self._patient:
                    raise
                log.warning("cannot store results, retrying", results=len(rows), reason=error.message)
                await asyncio.sleep(backoff.next())
        return 0


def _deleted(entry_id: UUID) -> dict[str, Any]:
    return {"entry": str(entry_id), "new": [], "deleted": True}


def _row(owner: Entry | Moment, result: Result) -> dict[str, Any]:
    return result.document() | {
        "entry_id": str(owner.id),
        "revision": owner.revision,
        "input_hash": result.input_hash,
        "provider": result.provider,
        "model": result.model,
        "vector": result.vector,
    }
