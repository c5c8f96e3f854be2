"""How an idle process waits for tasks without making every enqueue send a NOTIFY.

The protocol, and why it loses no wake-up, is described in sql/functions/05_sleepers.sql.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from shiftboss.db.listen import MISSED, Notice, Statement
from shiftboss.model.errors import DatabaseError

if TYPE_CHECKING:
    from shiftboss.db import Database

CHANNEL = "shiftboss_tasks"
STREAM = (0.001, 0.002, 0.004)
BRIEF = 0.004
LONGEST_PAUSE = 0.05
SOON = 0.2
MOST_PAUSES = 10
SHORTEST_STEP, LONGEST_STEP = 0.001, 0.25
# If a crash loses an update of the counter, that costs a few extra notifications. Commit without waiting.
NOT_DURABLE = "pg_catalog.set_config('synchronous_commit', 'off', true)"

_NUMBER = re.compile("[0-9]{1,18}")  # what fits into a bigint; any role can send a notification


class TransactionSnapshot(NamedTuple):
    """Transactions in progress: those in `running`, and all from `end` on."""

    start: int
    end: int
    running: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> TransactionSnapshot:
        start, end, running = text.split(":")
        return cls(int(start), int(end), frozenset(int(xid) for xid in running.split(",") if xid))

    def still(self, before: TransactionSnapshot) -> TransactionSnapshot:
        """Return `before`, reduced to the transactions that still run in this snapshot."""
        running = before.running & self.running if self.start < before.end else frozenset[int]()
        return before._replace(running=running)


class Sleeper:
    """Calls `look` whenever there may be a task, and sleeps after a look that found nothing.

    If sleeps are brief, tasks arrive in a stream: it looks a few times before it asks for a notification.
    It also does so while notifications without a task follow one another, longer each time: they are about
    tasks for other workers, and until this one has acknowledged them, all enqueues notify.
    """

    def __init__(self, db: Database, look: Callable[[], None]) -> None:
        self._db, self._look = db, look
        self._number: int | None = None
        self._passed = False
        self._sleep_task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._again = False
        self._brief = False
        self._asleep_since = 0.0
        self._empty_notices = 0
        self._pauses: list[float] = []
        self._pausing = False

    def found(self, something: bool) -> None:
        """Record whether the last look found a task."""
        if something:
            self._empty_notices = 0
            self._pauses = list(STREAM) if self._brief else []
            self._woken.set()
        elif self._sleeping:
            self._again = self._woken.is_set()
        else:
            self._sleep_task = asyncio.create_task(self._fall_asleep(), name="sleeper")

    def notice(self, notice: Notice) -> None:
        """Handle a notification, or MISSED."""
        if self._pausing:
            return  # it looks soon
        if notice != MISSED and self._sleeping and not self._woken.is_set():
            soon = time.monotonic() - self._asleep_since < SOON
            self._empty_notices = self._empty_notices + 1 if soon else 0
            self._pauses = _pauses(self._empty_notices) if soon else []
        self._woken.set()
        self._look()

    async def close(self) -> None:
        """Stop sleeping."""
        self._woken.set()
        if self._sleep_task is not None:
            await asyncio.wait({self._sleep_task}, timeout=1.0)
            self._sleep_task.cancel()
        number, self._number = self._number, None
        if number is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await _tolerant(self._db.execute(f"SELECT shiftboss.disarm(%s), {NOT_DURABLE}", [number]))

    def answer(self, notice: Notice) -> Statement | None:
        """Return the statement that acknowledges a notification, if this process has its number.

        The payload is the last number that was armed when it was sent. The process with that number
        acknowledges for all. A second notification shows that it did not. Called in the thread that listens:
        until this statement has run, all enqueues notify.
        """
        number, payload = self._number, notice.payload
        if notice.channel != CHANNEL or number is None or not _NUMBER.fullmatch(payload):
            return None
        if number > int(payload):
            return None
        if number < int(payload) and not self._passed:
            self._passed = True
            return None
        self._number = None
        return f"SELECT shiftboss.hear(%s), {NOT_DURABLE}", [int(payload)]

    @property
    def _sleeping(self) -> bool:
        return self._sleep_task is not None and not self._sleep_task.done()

    async def _fall_asleep(self) -> None:
        self._woken.clear()
        self._again = False
        if self._pauses:
            self._pausing = True
            await asyncio.sleep(self._pauses.pop(0))
            self._pausing = False
            self._look()
            return
        await _tolerant(self._sleep())
        if self._again:
            self._look()

    async def _sleep(self) -> None:
        self._asleep_since = time.monotonic()  # a notification can arrive before the reply
        row = await self._db.fetch_one(f"SELECT shiftboss.arm() AS number, {NOT_DURABLE}")
        if row is None or row["number"] is None:
            return
        self._number, self._passed = row["number"], False
        began = time.monotonic()
        under_way = await self._snapshot()
        self._look()
        await self._watch(under_way, began)
        self._brief = time.monotonic() - began < BRIEF

    async def _watch(self, under_way: TransactionSnapshot, began: float) -> None:
        """Wait for a notification. Look again after each end of a transaction that was in progress."""
        while under_way.running:
            step = min(max((time.monotonic() - began) / 20, SHORTEST_STEP), LONGEST_STEP)
            with suppress(TimeoutError):
                async with asyncio.timeout(step):
                    await self._woken.wait()
                    return
            left = (await self._snapshot()).still(under_way)
            if left != under_way:
                self._look()
            under_way = left
        await self._woken.wait()

    async def _snapshot(self) -> TransactionSnapshot:
        return TransactionSnapshot.parse(await self._db.value(str, "SELECT pg_current_snapshot()::text"))


def _pauses(empty_notices: int) -> list[float]:
    """Return the pauses between looks before the next sleep: longer ones, then more of them."""
    total = SHORTEST_STEP * 4 ** min(empty_notices, 5)
    return [min(total, LONGEST_PAUSE)] * min(math.ceil(total / LONGEST_PAUSE), MOST_PAUSES)


async def _tolerant(work: Coroutine[Any, Any, Any]) -> None:
    """Ignore database errors: the worker still polls."""
    with suppress(DatabaseError):
        await work
