"""The worker's side of a slot: it keeps its row in `health`, and ends when its supervisor is gone."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from shiftboss.lifecycle import Service, sleep
from shiftboss.lifecycle.processes import identity
from shiftboss.model.errors import DatabaseError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.runtime import Worker

log = structlog.get_logger()

VARIABLE = "SHIFTBOSS_SLOT"
EXIT_ORPHANED = 75
LAST_WORDS = 2000


@dataclass(frozen=True, kw_only=True)
class Seat:
    """What a supervisor hands to the process it starts, in one variable."""

    component: str
    host: str
    lifeline: int
    """Reads end-of-file when the supervisor is gone, however it went."""
    words: int
    """A file for the reason of a sudden end."""
    grace: float
    """Seconds for an orderly end when the supervisor is gone."""

    @classmethod
    def taken(cls, environ: Mapping[str, str] = os.environ) -> Seat | None:
        """This process's seat; None: it was not started by a supervisor."""
        return cls(**json.loads(environ[VARIABLE])) if VARIABLE in environ else None

    def variable(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


@contextmanager
def seated() -> Iterator[Seat | None]:
    """Around the whole of a process's main: watch the supervisor, leave last words when it breaks."""
    seat = Seat.taken()
    if seat is None:
        yield None
        return
    del os.environ[VARIABLE]  # children of this process have no seat
    for descriptor in (seat.lifeline, seat.words):
        os.set_inheritable(descriptor, False)
    faulthandler.enable(seat.words)
    threading.Thread(target=_watch, args=[seat], name="lifeline", daemon=True).start()
    try:
        yield seat
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (0, None):
            words = f"{type(error).__name__}: {error}"
            os.write(seat.words, words[:LAST_WORDS].encode(errors="replace"))
        raise


def _watch(seat: Seat) -> None:
    """In a thread, since the event loop may be what hangs."""
    while os.read(seat.lifeline, 1):
        pass
    print(f"the supervisor of {seat.component} is gone: ending", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seat.grace)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(EXIT_ORPHANED)


class SlotBeat(Service):
    """Keeps the row of a slot: starting, healthy while it beats, stopping, gone."""

    def __init__(
        self,
        db: Database,
        component: str,
        *,
        host: str | None = None,
        every: float = 5.0,
        current_job: Callable[[], UUID | None] = lambda: None,
        tasks_done: Callable[[], int] = lambda: 0,
        ending: asyncio.Event | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`ending` is set when the process begins to stop."""
        super().__init__()
        self._ending = ending or asyncio.Event()
        self._db, self._component, self._host = db, component, host
        self._every = every
        self._current_job, self._tasks_done = current_job, tasks_done
        self._on_lost = on_lost
        self._status = "healthy"

    @classmethod
    def of(cls, seat: Seat, worker: Worker, db: Database, every: float) -> SlotBeat:
        """The beat of a worker that sits on a seat."""

        def current() -> UUID | None:
            return next((task.id for task in worker.current), None)

        return cls(
            db,
            seat.component,
            host=seat.host,
            every=every,
            current_job=current,
            tasks_done=lambda: worker.tally.completed + worker.tally.failed,
            ending=worker.stopping,
            on_lost=worker.request_stop,
        )

    async def register(self) -> None:
        """Take the row: this process is starting."""
        pid = os.getpid()
        await self._db.health.register_worker(
            self._component, pid, host=self._host, process=identity(pid), by=self._component
        )

    async def run(self) -> None:
        await self._beat()
        self.ready()
        while not await sleep(self._every, self.stopping, self._ending):
            await self._beat()
        self._status = "stopping"
        await self._beat()
        while not await sleep(self._every, self.stopping):
            await self._beat()

    async def remove(self) -> None:
        """A clean end: the row goes."""
        await self.stop()
        try:
            await self._db.health.remove_worker(self._component, pid=os.getpid(), by=self._component)
        except DatabaseError as error:
            log.warning("could not take away the health row", reason=error.message)

    async def _beat(self) -> None:
        try:
            row = await self._db.health.update_heartbeat(
                self._component,
                self._status,
                self._current_job(),
                pid=os.getpid(),
                details={"tasks_done": self._tasks_done()},
                by=self._component,
            )
        except DatabaseError as error:
            if error.refused:  # somebody has called this process dead
                log.error("this process has lost its slot: ending", reason=error.message)
                self._on_lost()
            else:
                log.warning("a health beat did not land", reason=error.message)
            return
        if row is None:
            log.error("this process has lost its slot: ending", component=self._component)
            self._on_lost()
