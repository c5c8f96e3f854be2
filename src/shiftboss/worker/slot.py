"""The worker's side of a slot: updates its row in `health`, and ends when its supervisor is gone."""

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
MESSAGE_BYTES = 2000


@dataclass(frozen=True, kw_only=True)
class SlotSpec:
    """What a supervisor passes to the process it starts, in one environment variable."""

    component: str
    host: str
    lifeline: int
    """A pipe that reads end-of-file when the supervisor ends for any reason."""
    grace: float
    """Seconds for an orderly end after the supervisor is gone."""
    words: int = -1
    """A file for the reason of a sudden end."""
    serves: str = ""
    """The fleet and the server. Supervisors of other fleets must not signal this process."""
    mark: int | None = None
    """A file for the mark of the process. None: an older supervisor started it."""

    @classmethod
    def taken(cls, environ: Mapping[str, str] = os.environ) -> SlotSpec | None:
        """Return the spec of this process, or None if it was not started by a supervisor."""
        return cls(**json.loads(environ[VARIABLE])) if VARIABLE in environ else None

    @classmethod
    def served_by(cls, pid: int) -> str | None:
        """Return what another process serves, from its environment, or None if that is unknown."""
        try:
            spec = json.loads(psutil.Process(pid).environ()[VARIABLE])
            return str(spec["serves"]) or None
        except (psutil.Error, OSError, KeyError, TypeError, ValueError):
            return None

    def say(self, words: str) -> None:
        """Leave the reason why this process ends for the supervisor."""
        os.write(self.words, words[:MESSAGE_BYTES].encode(errors="replace"))

    def variable(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


@contextmanager
def supervised_slot() -> Iterator[SlotSpec | None]:
    """Wrap the main of a process: watch the supervisor, and report an exception to it."""
    spec = SlotSpec.taken()
    if spec is None:
        yield None
        return
    del os.environ[VARIABLE]  # child processes must not inherit the spec
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
    """End this process when its supervisor is gone. Runs in a thread, because the event loop may hang."""
    while os.read(spec.lifeline, 1):
        pass
    print(f"the supervisor of {spec.component} is gone: ending", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(spec.grace)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(EXIT_ORPHANED)


class SlotRow:
    """The row of this process in `health`: starting, healthy, stopping, then removed."""

    def __init__(self, db: Database, spec: SlotSpec, worker: Worker) -> None:
        self._db, self._spec, self._worker = db, spec, worker
        self._healthy = False

    async def register(self) -> None:
        """Register this process in the row, with the status `starting`."""
        pid, component = os.getpid(), self._spec.component
        await self._db.health.register_worker(
            component, pid, host=self._spec.host, process=identity(pid), by=component
        )

    def row(self) -> dict[str, Any]:
        """Return the row for `shiftboss.keep_process`. `stopping` is sent only after `healthy`."""
        worker = self._worker
        current = next((str(task.id) for task in worker.current), None)
        return {
            "component": self._spec.component,
            "pid": os.getpid(),
            "status": "stopping" if self._healthy and worker.stopping.is_set() else "healthy",
            "current_job": current,
            "details": {"tasks_done": worker.counters.completed + worker.counters.failed},
        }

    @property
    def news(self) -> tuple[asyncio.Event, ...]:
        """Events after which the next beat is due at once."""
        stopping = self._worker.stopping
        return () if stopping.is_set() else (stopping,)

    def handle_result(self, trouble: dict[str, Any]) -> None:
        """Handle the result of a beat. If it was rejected, the slot was marked as crashed: end."""
        error = DatabaseError(trouble["message"], sqlstate=trouble["sqlstate"]) if trouble else None
        if error is None:
            self._healthy = True
        elif error.refused:
            log.error("slot lost, stopping", reason=error.message)
            self._worker.request_stop()
        else:
            log.warning("health beat failed", reason=error.message)

    async def remove(self) -> None:
        """Remove the row after a clean end."""
        component = self._spec.component
        try:
            await self._db.health.remove_worker(component, pid=os.getpid(), by=component)
        except DatabaseError as error:
            log.warning("cannot remove the health row", reason=error.message)
