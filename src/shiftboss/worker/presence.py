"""Updates the rows of a process, its slot in `health` and its incarnation, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shiftboss.lifecycle import Service, sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError
from shiftboss.worker.slot import SlotRow
from shiftboss.worker.tracking import Tracker

if TYPE_CHECKING:
    from shiftboss.db import Database

log = get_logger(__name__)

#: Seconds after which the database counts as away if a beat has not returned.
PATIENCE = 5.0


@dataclass(slots=True)
class BeatRows:
    """The rows that one beat sends, and the errors that it returns for them."""

    slot: dict[str, Any] | None
    process: dict[str, Any] | None
    trouble: dict[str, Any] = field(default_factory=dict)


class Presence(Service):
    """Sends the rows of a process. Runs as a service only if no heartbeat to the database can carry them."""

    def __init__(
        self,
        db: Database,
        tracker: Tracker,
        slot: SlotRow | None = None,
        *,
        every: float = 5.0,
        on_away: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_away` is called when a beat fails, and repeatedly while one does not return."""
        super().__init__()
        self._db, self._tracker, self._slot = db, tracker, slot
        self._every = every
        self._on_away = on_away

    @contextmanager
    def rows(self) -> Iterator[BeatRows]:
        """Yield the rows to send, and handle the errors that the caller stores in them."""
        process = self._tracker.row() if self._tracker.beating else None
        rows = BeatRows(None if self._slot is None else self._slot.row(), process)
        alarm = asyncio.create_task(self._wait_for_answer())
        try:
            yield rows
        except BaseException:  # a timeout cancels the call
            self._on_away()
            raise
        finally:
            alarm.cancel()
        if self._slot is not None:
            self._slot.handle_result(rows.trouble.get("slot", {}))
        if process is not None:
            self._tracker.handle_result(rows.trouble.get("process", {}))

    async def _wait_for_answer(self) -> None:
        while True:
            await asyncio.sleep(max(self._every, PATIENCE))
            self._on_away()

    async def run(self) -> None:
        self.ready()
        while not self.stopping.is_set():
            await self._beat()
            await sleep(self._every, self.stopping, *(self._slot.news if self._slot is not None else ()))
        await self._beat()

    async def _beat(self) -> None:
        try:
            async with asyncio.timeout(max(self._every, PATIENCE)):
                with self.rows() as rows:
                    rows.trouble = await self._db.workers.keep_process(rows.slot, rows.process)
        except (DatabaseError, TimeoutError) as error:
            log.warning("process beat failed", reason=str(error) or "timeout")
            self._tracker.strike()
