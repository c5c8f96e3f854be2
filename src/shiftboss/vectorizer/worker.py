"""A process's vectorizer work: every vectorizer that is due runs by itself, so that none holds up another."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from shiftboss.db.listen import listen
from shiftboss.db.vectorizers import CHANNEL
from shiftboss.lifecycle import Backoff, Service, sleep
from shiftboss.model.errors import DatabaseError
from shiftboss.model.settings import VectorizerSettings
from shiftboss.model.vectorizer import Vectorizer
from shiftboss.vectorizer.embed import Embedder
from shiftboss.vectorizer.run import Done, Run

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.tracking import Tracker

log = structlog.get_logger()


class VectorizerWorker(Service):
    """Works until stopped; with `once`, until nothing is due any more."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder,
        *,
        tracker: Tracker | None = None,
        settings: VectorizerSettings | None = None,
        listen_url: str | None = None,
        once: bool = False,
    ) -> None:
        super().__init__()
        self._db = db
        self._embedder = embedder
        self._tracker = tracker
        self._settings = settings or VectorizerSettings()
        self._listen_url = listen_url or db.url
        self._once = once
        self._wake = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._runs: dict[int, Run] = {}
        self._ended: set[int] = set()
        self.errors: dict[str, str] = {}
        self.grace = 60.0

    async def run(self) -> None:
        ear = None if self._once else asyncio.create_task(self._hear(), name="vectorizer ear")
        self.ready()
        try:
            await self._work()
        finally:
            if ear is not None:
                ear.cancel()
                with suppress(asyncio.CancelledError):
                    await ear
            for run in self._runs.values():
                run.stop()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _work(self) -> None:
        backoff = Backoff()
        while not self.stopping.is_set():
            self._wake.clear()
            try:
                due = await self._db.vectorizers.due()
            except DatabaseError as error:
                log.warning("could not look for vectorizers", reason=error.message)
                await sleep(backoff.next(), self.stopping)
                continue
            backoff.reset()
            for vectorizer in due:
                if vectorizer.id not in self._tasks and vectorizer.id not in self._ended:
                    self._start(vectorizer)
            if self._once and not self._tasks:
                return
            await sleep(self._settings.poll, self._wake, self.stopping)

    def _start(self, vectorizer: Vectorizer) -> None:
        self._tasks[vectorizer.id] = asyncio.create_task(
            self._run_one(vectorizer), name=f"vectorizer {vectorizer.name}"
        )

    async def _run_one(self, vectorizer: Vectorizer) -> None:
        done = Done()
        try:
            # As it is from here on: what was renamed in the source is followed as the run begins.
            begun = await self._db.vectorizers.begin(vectorizer.id)
            if begun is not None and not self.stopping.is_set():
                run = self._runs[vectorizer.id] = self._run_of(begun)
                done = run.done
                await run()
            self.errors.pop(vectorizer.name, None)
        except Exception as error:
            # Whatever it is, the others go on; this one is tried again a little later.
            log.exception("vectorizer failed", vectorizer=vectorizer.name)
            self.errors[vectorizer.name] = str(error)
        self._runs.pop(vectorizer.id, None)
        if not done.rows and not done.failed:
            # Nothing could be done though something was due: somebody holds its rows. Do not spin.
            await self._rest(vectorizer)
        del self._tasks[vectorizer.id]
        self._wake.set()

    def _run_of(self, vectorizer: Vectorizer) -> Run:
        return Run(self._db, self._embedder, vectorizer, tracker=self._tracker, lease=self._settings.lease)

    async def _rest(self, vectorizer: Vectorizer) -> None:
        if self._once:
            self._ended.add(vectorizer.id)
        else:
            await sleep(self._settings.poll, self.stopping)

    async def _hear(self) -> None:
        async for _ in listen(self._listen_url, [CHANNEL]):
            self._wake.set()
