"""Runs a vectorizer: lanes take batches through the stages until the queue is empty or the time is up.

There are three lanes per concurrent provider call, so that the provider is busy while other lanes load or
write. No transaction is open during a provider call.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from shiftboss.db import Database
from shiftboss.extensions.vectorizer.batch import Failed, Prepared
from shiftboss.extensions.vectorizer.chunk import chunker
from shiftboss.extensions.vectorizer.embed import Embed, Embedder
from shiftboss.extensions.vectorizer.format import Format
from shiftboss.extensions.vectorizer.load import RowLoader
from shiftboss.extensions.vectorizer.model import SourceRow, VectorizerSpec
from shiftboss.extensions.vectorizer.store import Vectorizers
from shiftboss.extensions.vectorizer.write import Write
from shiftboss.lifecycle import sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, Defer
from shiftboss.worker.tracking import Tracker

log = get_logger(__name__)
LANES_PER_CALL = 3
COUNT_SECONDS = 1.0
MAX_CHUNKS = 50_000  # per row: its vectors must fit into one message to PostgreSQL


@dataclass(slots=True)
class RunResult:
    """The result of a run; `deferred` is the reason if it ended early."""

    rows: int = 0
    chunks: int = 0
    failed: int = 0
    deferred: str | None = None


class VectorizerRun:
    """One run of a vectorizer in this process."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder,
        vectorizer: VectorizerSpec,
        *,
        tracker: Tracker | None = None,
        lease: float = 180.0,
        seconds: float | None = None,
        on_batch: Callable[[RunResult], None] | None = None,
        build: Callable[[int], None] | None = None,
    ) -> None:
        self._db = db
        self._vectorizer = vectorizer
        self._tracker = tracker
        self._lease = lease
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._on_batch = on_batch
        self._build = build
        self._load = RowLoader(db, vectorizer, lease)
        self._format = Format(vectorizer)
        self._chunk = chunker(vectorizer)
        self._embed = Embed(vectorizer, embedder)
        self._write = Write(db, vectorizer)
        self._calls = asyncio.Semaphore(vectorizer.concurrency)
        self._uncounted = (0, 0)
        self._counted_at = time.monotonic()
        self._unavailable: DatabaseUnavailable | None = None
        self.done = RunResult()

    def stop(self) -> None:
        """Stop claiming rows; batches in progress are finished."""
        self._load.close()

    async def __call__(self) -> RunResult:
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(self._vectorizer.concurrency * LANES_PER_CALL):
                    lanes.create_task(self._lane())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the others follow from the first
        finally:
            await self._load.give_back()
            await self._count(0, 0, at_once=True)
        if self._unavailable is not None:
            raise self._unavailable
        if self.done.deferred is None and not self._out_of_time():
            if self._build is not None and self._vectorizer.replaces is None:
                self._build(self._vectorizer.id)
            else:
                await finish(self._db, self._vectorizer)
        return self.done

    async def _lane(self) -> None:
        while rows := await self._next():
            try:
                await self._batch(rows)
            except Defer as error:
                await self._defer(rows, error)
            except BaseException:
                self._load.close()
                raise
            if self._out_of_time():
                self._load.close()

    async def _next(self) -> list[SourceRow]:
        """Return the next batch, or none if the database is unavailable; other lanes finish theirs."""
        try:
            return await self._load.batch()
        except DatabaseUnavailable as error:
            self._load.close()
            self._unavailable = error
            return []

    async def _batch(self, rows: Sequence[SourceRow]) -> None:
        async with self._held(rows):
            prepared, failed = await asyncio.to_thread(self._prepare, rows)
            async with self._calls:
                if self.done.deferred is not None:
                    raise Defer(self.done.deferred, 0)
                answered = await self._embed.batch(prepared)
        failed += answered.failed
        written = 0
        for part in answered.embedded:
            result = await self._write.batch(part)
            self.done.rows += result.rows
            written += result.chunks
            failed += result.failed
            await self._count(result.rows, result.chunks)
        self.done.chunks += written
        await self._report(written, failed)
        if self._on_batch is not None:
            self._on_batch(self.done)
        if answered.trouble is not None:
            await self._defer(answered.held, answered.trouble)

    @asynccontextmanager
    async def _held(self, rows: Sequence[SourceRow]) -> AsyncIterator[None]:
        """Extend the claim until the batch is embedded, so that no other worker embeds the rows."""
        done = asyncio.Event()
        keeper = asyncio.create_task(self._hold(rows, done))
        try:
            yield
        finally:
            done.set()  # do not cancel the keeper: it may be updating the rows' tids
            await keeper

    async def _hold(self, rows: Sequence[SourceRow], done: asyncio.Event) -> None:
        while not await sleep(self._lease / 3, done):
            try:
                await self._db.family(Vectorizers).extend(
                    self._vectorizer.id, rows, timedelta(seconds=self._lease)
                )
            except DatabaseError as error:
                log.warning("cannot extend the claim of rows", reason=error.message)

    async def _count(self, rows: int, chunks: int, *, at_once: bool = False) -> None:
        """Record progress for the rate in the status, about once a second, since all lanes share one row."""
        self._uncounted = (self._uncounted[0] + rows, self._uncounted[1] + chunks)
        if any(self._uncounted) and (at_once or time.monotonic() > self._counted_at + COUNT_SECONDS):
            (rows, chunks), self._uncounted = self._uncounted, (0, 0)
            self._counted_at = time.monotonic()
            await self._db.family(Vectorizers).count(self._vectorizer.id, rows, chunks)

    def _prepare(self, rows: Sequence[SourceRow]) -> tuple[list[Prepared], list[Failed]]:
        """Format and split the rows. Runs in a thread, since long texts take time."""
        prepared: list[Prepared] = []
        failed: list[Failed] = []
        for row in rows:
            try:
                chunks = self._chunk(self._format.text(row)) if row.present else []
                if len(chunks) > MAX_CHUNKS:
                    raise ValueError(f"{len(chunks)} chunks exceed the maximum of {MAX_CHUNKS}")
                prepared.append(Prepared(row, [self._format.wrap(chunk, row) for chunk in chunks]))
            except Exception as error:
                failed.append(Failed(row, "chunk", f"{type(error).__name__}: {error}"))
        return prepared, failed

    async def _report(self, written: int, failed: Sequence[Failed]) -> None:
        if self._tracker is not None and written:
            await self._tracker.progress(self._vectorizer.counted_as, written)
        by_step = defaultdict(list)
        for each in failed:
            by_step[each.step].append(each)
            self.done.failed += 1
            log.warning("row failed", vectorizer=self._vectorizer.name, step=each.step, reason=each.reason)
            if self._tracker is not None:
                await self._tracker.progress(self._vectorizer.counted_as, 0, f"{each.step}: {each.reason}")
        for step, some in by_step.items():
            reasons = [each.reason for each in some]
            await self._db.family(Vectorizers).fail(
                self._vectorizer.id, [each.row for each in some], step, reasons
            )

    async def _defer(self, rows: Sequence[SourceRow], error: Defer) -> None:
        """Release the rows. The first lane that fails defers the whole vectorizer."""
        self._load.close()
        if self.done.deferred is None:
            self.done.deferred = error.reason
            log.warning("vectorizer deferred", vectorizer=self._vectorizer.name, reason=error.message)
            await self._db.family(Vectorizers).defer(
                self._vectorizer.id, timedelta(seconds=error.seconds), error.reason
            )
            if self._tracker is not None:
                await self._tracker.progress(self._vectorizer.counted_as, 0, f"deferred: {error.message}")
        await self._db.family(Vectorizers).release(self._vectorizer.id, rows)

    def _out_of_time(self) -> bool:
        return self._ends is not None and time.monotonic() > self._ends


async def finish(db: Database, vectorizer: VectorizerSpec) -> None:
    """Build a due index and swap in a finished replacement, once the queue is empty."""
    await db.family(Vectorizers).index(vectorizer.id)
    if vectorizer.replaces is not None and await db.family(Vectorizers).swap(vectorizer.id):
        log.info("vectorizer updated", vectorizer=vectorizer.name)
