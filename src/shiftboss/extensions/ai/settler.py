"""Reports the cost of calls to the database; while that is unavailable, keeps it in memory and on disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from shiftboss.extensions.ai.ledger import Entry, Ledger
from shiftboss.extensions.ai.records import sealed
from shiftboss.extensions.ai.secrets import redact
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.log import get_logger
from shiftboss.model.errors import ConfigError, DatabaseError, DatabaseUnavailable
from shiftboss.model.step import in_step

log = get_logger(__name__)
SETTLE_TIMEOUT = 1.0  # seconds that a caller waits for its call to be settled
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
CLOSE_TIMEOUT = 3.0  # seconds to send entries when the engine closes; the rest stays on disk
KEEP_UNKNOWN = 7 * 86_400.0  # seconds; a call that is unknown here may belong to another database


class Settler:
    """Settles the calls of one engine. An entry may be sent more than once: `settle_call` is idempotent."""

    def __init__(self, shared: AIEngine, directory: Path) -> None:
        self._shared = shared
        self._ledger = _ledger(directory)
        self._waiting: dict[str, Entry] = {}
        self._with_steps: dict[str, Entry] = {}
        self._costly: dict[str, Entry] = {}
        self._closed = False
        self._foreign: set[str] = set()
        self._booked: dict[str, asyncio.Event] = {}
        self._sender: asyncio.Task[None] | None = None
        self._caught_up = asyncio.Event()
        self._take_over(empty=True)

    async def catch_up(self, timeout: float) -> None:
        """Record the cost of earlier calls of this process, and of those on this host that have ended.

        They may have cost more than was reserved, so a budget holds only if they are recorded first.
        """
        self._waiting |= self._costly
        self._costly.clear()
        self._take_over()
        try:
            async with asyncio.timeout(timeout):
                await self._caught_up.wait()
        except TimeoutError:
            raise DatabaseUnavailable("the cost of earlier calls is not recorded yet") from None

    def _take_over(self, *, empty: bool = False) -> None:
        self._on_disk(
            lambda ledger: self._waiting.update({e["call_id"]: e for e in ledger.left_behind(empty=empty)})
        )
        self._send_soon()

    async def settle(self, call_id: UUID, *, reserved: float, **result: Any) -> None:
        """Settle a call. If that takes longer than a second, return; the entry is on disk and is sent later.

        A successful call inside a step is settled in the transaction that stores the step, or before the next
        call of this process if it cost more than was reserved.
        """
        entry: Entry = {"call_id": str(call_id), "noted_at": time.time(), **sealed(result)}
        self._on_disk(lambda ledger: ledger.note(entry))
        if result["outcome"] == "ok" and self._attached(entry):
            if result["cost"] > reserved:
                self._costly[entry["call_id"]] = entry
            return
        self._waiting[entry["call_id"]] = entry
        booked = self._booked[entry["call_id"]] = asyncio.Event()
        self._send_soon()
        try:
            async with asyncio.timeout(SETTLE_TIMEOUT):
                await booked.wait()
        except TimeoutError:
            self._on_disk(Ledger.sync)
            log.warning("AI spend not recorded yet, will retry", call=entry["call_id"])
        finally:
            self._booked.pop(entry["call_id"], None)
            self._note_progress()

    def _attached(self, entry: Entry) -> bool:
        """Attach the entry to the current step, and return whether there is one."""
        scope, id = in_step.get(), entry["call_id"]

        def ended(stored: bool) -> None:
            del self._with_steps[id]
            self._costly.pop(id, None)
            if self._closed:
                return  # the entry is still on disk, and the next process settles it
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
            await asyncio.wait([self._sender], timeout=CLOSE_TIMEOUT)
            self._sender.cancel()
        self._closed = True
        self._on_disk(Ledger.close)

    def _on_disk(self, work: Callable[[Ledger], None]) -> None:
        """Update the ledger. A disk error is only logged: the caller still gets its answer."""
        try:
            if self._ledger is not None:
                work(self._ledger)
        except OSError as error:
            log.error("cannot write AI spend to disk", reason=str(error))

    def _note_progress(self) -> None:
        """Note whether an entry is overdue, which means that no caller waits for it."""
        if any(id not in self._foreign and id not in self._booked for id in self._waiting):
            self._caught_up.clear()
        else:
            self._caught_up.set()

    def _send_soon(self) -> None:
        self._note_progress()
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
        """Send one entry. Raises errors that are worth a retry."""
        entry = self._waiting[id]
        result = {name: value for name, value in entry.items() if name not in ("call_id", "noted_at")}
        try:
            state = await self._shared.settle_call(UUID(id), **result)
        except (DatabaseError, TypeError) as error:  # TypeError: another version wrote the entry
            if isinstance(error, DatabaseError) and _may_pass(error):
                raise
            # Drop the entry: it can never be sent. Its reservation remains, so the estimate counts as spent.
            log.error("cannot record AI spend, counting the estimate", call=id, error=redact(str(error)))
            state = "refused"
        if state == "unknown" and time.time() - entry["noted_at"] < KEEP_UNKNOWN:
            self._foreign.add(id)  # keep it for a process that is connected to its database
        else:
            self._waiting.pop(id, None)
            self._on_disk(self._settled)
        if id in self._booked:
            self._booked[id].set()
        self._note_progress()


def _ledger(directory: Path) -> Ledger | None:
    try:
        return Ledger(directory)
    except (OSError, ConfigError) as error:
        log.warning("keeping AI spend in memory only", directory=str(directory), reason=str(error))
        return None


def _may_pass(error: DatabaseError) -> bool:
    """Whether a retry may succeed. An error without SQLSTATE means that the driver cannot send the values."""
    return isinstance(error, DatabaseUnavailable) or (error.sqlstate is not None and not error.refused)
