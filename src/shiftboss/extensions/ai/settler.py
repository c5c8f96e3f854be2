"""Tells the database what calls cost, now or, while it is away, later: in memory and on disk until then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from shiftboss.extensions.ai.ledger import Entry, Ledger
from shiftboss.extensions.ai.secrets import redact
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable
from shiftboss.model.step import in_step

log = get_logger(__name__)
PATIENCE = 1.0  # seconds that a caller waits for its call to be booked, before it goes on without
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
LAST_PATIENCE = 3.0  # seconds for what is left when the engine closes; the rest stays on disk
UNKNOWN_FOR = 7 * 86_400.0  # a call that this database does not know may be of another one


class Settler:
    """One per engine. Settling is idempotent by call id, so an entry may be sent any number of times."""

    def __init__(self, shared: AIEngine, directory: Path) -> None:
        self._shared = shared
        self._ledger = _ledger(directory)
        self._waiting: dict[str, Entry] = {}
        self._with_steps: dict[str, Entry] = {}
        self._closed = False
        self._foreign: set[str] = set()
        self._booked: dict[str, asyncio.Event] = {}
        self._sender: asyncio.Task[None] | None = None
        for entry in self._ledger.left_behind() if self._ledger is not None else ():
            self._waiting[str(entry["call_id"])] = entry
        self._send_soon()

    async def settle(self, call_id: UUID, **said: Any) -> None:
        """Returns when the database has it, or after a moment; then it is on disk and will be sent later.

        An answer that arrived inside of a step is settled in the transaction that stores the step.
        """
        entry: Entry = {"call_id": str(call_id), "noted_at": time.time(), **said}
        self._on_disk(lambda ledger: ledger.note(entry))
        if said["outcome"] == "ok" and self._attached(entry):
            return
        self._waiting[entry["call_id"]] = entry
        booked = self._booked[entry["call_id"]] = asyncio.Event()
        self._send_soon()
        try:
            async with asyncio.timeout(PATIENCE):
                await booked.wait()
        except TimeoutError:
            self._on_disk(Ledger.sync)
            log.warning("AI spend is written later", call=entry["call_id"])
        finally:
            self._booked.pop(entry["call_id"], None)

    def _attached(self, entry: Entry) -> bool:
        """Whether the entry travels with the step that runs here."""
        scope, id = in_step.get(), entry["call_id"]

        def ended(stored: bool) -> None:
            del self._with_steps[id]
            if self._closed:
                return  # the next process finds it on disk; settling it twice is harmless
            if stored:
                self._on_disk(self._settled)
            else:
                self._waiting[id] = entry
                self._send_soon()

        if scope is None or not scope.attach(self._shared.where, "ai_calls", entry, ended):
            return False
        self._with_steps[id] = entry
        return True

    def _settled(self, ledger: Ledger) -> None:
        ledger.settled({**self._waiting, **self._with_steps})

    async def close(self) -> None:
        if self._sender is not None:
            await asyncio.wait([self._sender], timeout=LAST_PATIENCE)
            self._sender.cancel()
        self._closed = True
        self._on_disk(Ledger.close)

    def _on_disk(self, work: Callable[[Ledger], None]) -> None:
        """A full disk must not cost the caller an answer that is paid: the reservation counts instead."""
        try:
            if self._ledger is not None:
                work(self._ledger)
        except OSError as error:
            log.error("AI spend cannot be kept on disk", reason=str(error))

    def _send_soon(self) -> None:
        if self._waiting and (self._sender is None or self._sender.done()):
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        pause = FIRST_PAUSE
        while due := [id for id in self._waiting if id not in self._foreign]:
            try:
                for id in due:
                    await self._deliver(id)
                pause = FIRST_PAUSE
            except DatabaseError:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _deliver(self, id: str) -> None:
        """Send one entry. Raises what may pass: then it is sent again later."""
        entry = self._waiting[id]
        said = {name: value for name, value in entry.items() if name not in ("call_id", "noted_at")}
        try:
            state = await self._shared.settle_call(UUID(id), **said)
        except (DatabaseError, TypeError) as error:  # the latter: written by another version
            if isinstance(error, DatabaseError) and _may_pass(error):
                raise
            # Kept, it would be sent again forever. Its reservation stays, so the estimate counts as spent.
            log.error("AI spend is left out", call=id, error=redact(str(error)))
            state = "refused"
        if state == "unknown" and time.time() - entry["noted_at"] < UNKNOWN_FOR:
            self._foreign.add(id)  # it waits for a process that is connected to its database
        else:
            self._waiting.pop(id, None)
            self._on_disk(self._settled)
        if id in self._booked:
            self._booked[id].set()


def _ledger(directory: Path) -> Ledger | None:
    try:
        return Ledger(directory)
    except OSError as error:
        log.warning("AI spend is kept in memory only", directory=str(directory), reason=str(error))
        return None


def _may_pass(error: DatabaseError) -> bool:
    """Without a state it is the driver that cannot send the values, which it never will."""
    return isinstance(error, DatabaseUnavailable) or (error.sqlstate is not None and not error.refused)
