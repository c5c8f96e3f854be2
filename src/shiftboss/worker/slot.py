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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import psutil

from shiftboss.lifecycle.processes import identity
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.worker.runtime import Worker

log = get_logger(__name__)

VARIABLE = "SHIFTBOSS_SLOT"
EXIT_ORPHANED = 75
LAST_WORDS = 2000


@dataclass(frozen=True, kw_only=True)
class SlotSpec:
    """What a supervisor hands to the process it starts, in one variable."""

    component: str
    host: str
    lifeline: int
    """Reads end-of-file when the supervisor is gone, however it went."""
    words: int
    """A file for the reason of a sudden end."""
    grace: float
    """Seconds for an orderly end when the supervisor is gone."""
    serves: str = ""
    """Which fleet on which server: no other supervisor may signal this process."""
    mark: int | None = None
    """A file for what the process is doing; None: an older supervisor started it."""

    @classmethod
    def taken(cls, environ: Mapping[str, str] = os.environ) -> SlotSpec | None:
        """This process's spec; None: it was not started by a supervisor."""
        return cls(**json.loads(environ[VARIABLE])) if VARIABLE in environ else None

    @classmethod
    def served_by(cls, pid: int) -> str | None:
        """What a process serves, by the variable it was started with. None: that cannot be told."""
        try:
            spec = json.loads(psutil.Process(pid).environ()[VARIABLE])
            return str(spec["serves"]) or None
        except (psutil.Error, OSError, KeyError, TypeError, ValueError):
            return None

    def say(self, words: str) -> None:
        """Leave last words: why this process ends."""
        os.write(self.words, words[:LAST_WORDS].encode(errors="replace"))

    def variable(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


@contextmanager
def supervised_slot() -> Iterator[SlotSpec | None]:
    """Around the whole of a process's main: watch the supervisor, leave last words when it breaks."""
    spec = SlotSpec.taken()
    if spec is None:
        yield None
        return
    del os.environ[VARIABLE]  # children of this process have no spec
    for descriptor in (spec.lifeline, spec.words, spec.mark):
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
    faulthandler.enable(spec.words)
    threading.Thread(target=_watch, args=[spec], name="lifeline", daemon=True).start()
    try:
        yield spec
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (0, None):
            spec.say(f"{type(error).__name__}: {error}")
        raise


def _watch(spec: SlotSpec) -> None:
    """In a thread, since the event loop may be what hangs."""
    while os.read(spec.lifeline, 1):
        pass
    print(f"the supervisor of {spec.component} is gone: ending", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(spec.grace)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(EXIT_ORPHANED)


class SlotRow:
    """This process's row in `health`: starting, healthy while it beats, stopping, gone."""

    def __init__(self, db: Database, spec: SlotSpec, worker: Worker) -> None:
        self._db, self._spec, self._worker = db, spec, worker
        self._healthy = False

    async def register(self) -> None:
        """Take the row: this process is starting."""
        pid, component = os.getpid(), self._spec.component
        await self._db.health.register_worker(
            component, pid, host=self._spec.host, process=identity(pid), by=component
        )

    def row(self) -> dict[str, Any]:
        """What `shiftboss.keep_process` takes. A slot is healthy once before it is stopping."""
        worker = self._worker
        current = next((str(task.id) for task in worker.current), None)
        return {
            "component": self._spec.component,
            "pid": os.getpid(),
            "status": "stopping" if self._healthy and worker.stopping.is_set() else "healthy",
            "current_job": current,
            "details": {"tasks_done": worker.tally.completed + worker.tally.failed},
        }

    @property
    def news(self) -> tuple[asyncio.Event, ...]:
        """What the next beat should not wait for."""
        stopping = self._worker.stopping
        return () if stopping.is_set() else (stopping,)

    def landed(self, trouble: dict[str, Any]) -> None:
        """Hear how a beat ended. A refusal means that this process was called dead: it ends."""
        error = DatabaseError(trouble["message"], sqlstate=trouble["sqlstate"]) if trouble else None
        if error is None:
            self._healthy = True
        elif error.refused:
            log.error("this process has lost its slot: ending", reason=error.message)
            self._worker.request_stop()
        else:
            log.warning("a health beat did not land", reason=error.message)

    async def remove(self) -> None:
        """A clean end: the row goes."""
        component = self._spec.component
        try:
            await self._db.health.remove_worker(component, pid=os.getpid(), by=component)
        except DatabaseError as error:
            log.warning("could not take away the health row", reason=error.message)
