"""Runs all due vectorizers in one process, concurrently, so that none delays another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from shiftboss.db import Database
from shiftboss.db.listen import listen
from shiftboss.extensions.vectorizer.answer import answer_queries
from shiftboss.extensions.vectorizer.embed import Embedder
from shiftboss.extensions.vectorizer.model import VectorizerSpec
from shiftboss.extensions.vectorizer.run import RunResult, VectorizerRun
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.store import CHANNEL, Vectorizers
from shiftboss.lifecycle import Backoff, Service, sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError
from shiftboss.worker.tracking import Tracker

log = get_logger(__name__)


class VectorizerWorker(Service):
    """Runs until stopped; with `once`, until nothing is due."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder,
        *,
        tracker: Tracker | None = None,
        settings: VectorizerSettings | None = None,
        listen_url: str | None = None,
        once: bool = False,
        only: Sequence[int] | None = None,
        concurrency: int | None = None,
    ) -> None:
        super().__init__()
        self._db = db
        self._embedder = embedder
        self._tracker = tracker
        self._settings = settings or VectorizerSettings()
        self._listen_url = listen_url or db.url
        self._once = once
        self._only = only
        self._concurrency = concurrency
        self._wake = asyncio.Event()
        self._asked = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._runs: dict[int, VectorizerRun] = {}
        self._builds: dict[int, asyncio.Task[bool]] = {}
        self._ended: set[int] = set()
        self.errors: dict[str, str] = {}
        self.grace = 60.0

    async def run(self) -> None:
        beside = (
            [] if self._once else [asyncio.create_task(self._listen()), asyncio.create_task(self._answer())]
        )
        self.ready()
        try:
            if self._once:
                await answer_queries(self._db, self._embedder, self._only)
            await self._work()
        finally:
            for task in (*beside, *self._builds.values()):
                task.cancel()
                with suppress(asyncio.CancelledError, DatabaseError):
                    await task
            for run in self._runs.values():
                run.stop()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _work(self) -> None:
        backoff = Backoff()
        while not self.stopping.is_set():
            self._wake.clear()
            try:
                due = await self._due()
            except DatabaseError as error:
                log.warning("cannot list due vectorizers", reason=error.message)
                await sleep(backoff.next(), self.stopping)
                continue
            backoff.reset()
            for vectorizer in due:
                if vectorizer.id not in self._tasks and vectorizer.id not in self._ended:
                    self._start(vectorizer)
            if self._once and not self._tasks:
                return
            await sleep(self._settings.poll, self._wake, self.stopping)

    async def _due(self) -> list[VectorizerSpec]:
        due = await self._db.family(Vectorizers).due()
        return [each for each in due if self._only is None or each.counted_as in self._only]

    async def _answer(self) -> None:
        """Answer queries in a loop of their own, so that they do not wait for the embedding of rows."""
        while True:
            self._asked.clear()
            try:
                await answer_queries(self._db, self._embedder, self._only)
            except DatabaseError as error:
                log.warning("cannot answer queries", reason=error.message)
            await sleep(self._settings.poll, self._asked, self.stopping)

    def _start(self, vectorizer: VectorizerSpec) -> None:
        self._tasks[vectorizer.id] = asyncio.create_task(
            self._run_one(vectorizer), name=f"vectorizer {vectorizer.name}"
        )

    async def _run_one(self, vectorizer: VectorizerSpec) -> None:
        done = RunResult()
        try:
            # Reload it: `begin` follows columns that were renamed in the source.
            begun = await self._db.family(Vectorizers).begin(vectorizer.id)
            if begun is not None and not self.stopping.is_set():
                run = self._runs[vectorizer.id] = self._run_of(begun)
                done = run.done
                await run()
            self.errors.pop(vectorizer.name, None)
        except Exception as error:
            # The other vectorizers continue; this one is retried later.
            log.exception("vectorizer failed", vectorizer=vectorizer.name)
            self.errors[vectorizer.name] = str(error)
        self._runs.pop(vectorizer.id, None)
        if not done.rows and not done.failed:
            # Rows are due but claimed by another worker: wait, to avoid a busy loop.
            await self._rest(vectorizer)
        del self._tasks[vectorizer.id]
        self._wake.set()

    def _run_of(self, vectorizer: VectorizerSpec) -> VectorizerRun:
        vectorizer = replace(vectorizer, concurrency=self._concurrency or vectorizer.concurrency)
        return VectorizerRun(
            self._db,
            self._embedder,
            vectorizer,
            tracker=self._tracker,
            lease=self._settings.lease,
            build=None if self._once else self._start_build,
        )

    def _start_build(self, id: int) -> None:
        """Build indexes in the background, since a large one takes long and rows keep changing."""
        if id not in self._builds:
            self._builds[id] = asyncio.create_task(
                self._db.family(Vectorizers).index(id), name=f"index of {id}"
            )
            self._builds[id].add_done_callback(lambda task: self._built(id, task))

    def _built(self, id: int, task: asyncio.Task[bool]) -> None:
        del self._builds[id]
        if not task.cancelled() and (error := task.exception()):
            log.warning("cannot build the index", vectorizer=id, reason=str(error))

    async def _rest(self, vectorizer: VectorizerSpec) -> None:
        if self._once:
            self._ended.add(vectorizer.id)
        else:
            await sleep(self._settings.poll, self.stopping)

    async def _listen(self) -> None:
        async for _ in listen(self._listen_url, [CHANNEL]):
            self._wake.set()
            self._asked.set()
