"""The heartbeat: one call extends all leases, sends statistics, and returns orders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from shiftboss.lifecycle import Service, sleep
from shiftboss.log import get_logger
from shiftboss.model.worker import Orders
from shiftboss.worker.counters import Counters
from shiftboss.worker.source import Source

log = get_logger(__name__)

LATE = 1.0
#: The fraction of a lease after which work stops without a successful beat. Stopping takes some time.
SAFE = 0.7
LAST = 0.95


class Heart(Service):
    """Sends heartbeats until stopped. If they fail, `on_lost` is called before the leases expire."""

    def __init__(
        self,
        source: Source,
        counters: Counters,
        *,
        beat_seconds: float,
        lease_seconds: float,
        leases: Callable[[], list[int]],
        usage: Callable[[], dict[str, Any]],
        on_orders: Callable[[Orders], None],
        on_lost: Callable[[], None],
    ) -> None:
        super().__init__()
        self._source, self._counters = source, counters
        self._every = beat_seconds
        self._lease = lease_seconds
        self._leases, self._usage = leases, usage
        self._on_orders, self._on_lost = on_orders, on_lost
        self.last_success = time.monotonic()
        """When the last successful beat started, by the monotonic clock."""
        self.lost = False
        """Whether the leases may have expired, so that nothing may be claimed until a beat succeeds."""
        self._alarm: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        self._record_success(time.monotonic())
        self.ready()
        try:
            await self._beat_on()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    async def _beat_on(self) -> None:
        while not self.stopping.is_set():
            began = time.monotonic()
            await self._beat()
            # After a failure, beat more often, so that one can succeed before the leases expire.
            pause = self._every if self.last_success >= began else min(self._every, self._lease / 20)
            due = time.monotonic() + pause
            await sleep(pause, self._source.orders, self.stopping)
            if (late := time.monotonic() - due) > LATE:
                log.warning("the event loop was blocked", seconds=round(late, 1))
        await self._beat()

    async def _beat(self) -> None:
        stats = self._counters.take()
        began = time.monotonic()
        try:
            orders = await self._answer(stats)
        except Exception as error:  # of any kind: the alarm stops work before the leases expire
            log.warning("heartbeat failed", reason=str(error) or "timeout")
            return
        self._counters.confirm()
        self._record_success(began)
        self._on_orders(orders)

    def _record_success(self, began: float) -> None:
        """Record a successful beat. The leases count from its start."""
        self.last_success, self.lost = began, False
        if self._alarm is not None:
            self._alarm.cancel()
        # A timer, because a query on a dead connection can hang for a while even when it is cancelled.
        self._set_alarm(began + self._lease * SAFE)

    def _set_alarm(self, due: float) -> None:
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(due - time.monotonic(), self._lose, due)

    def _lose(self, due: float) -> None:
        now, last = time.monotonic(), self.last_success + self._lease * LAST
        if due + 0.1 < now < last:  # late, because the loop was blocked: a beat may succeed right now
            self._set_alarm(min(now + LATE, last))
            return
        self.lost = True
        log.error("no heartbeat succeeded in time, stopping all work before the leases expire")
        self._on_lost()

    async def _answer(self, stats: list[dict[str, Any]]) -> Orders:
        """Send a beat. Time out before the leases can expire."""
        left = None if self.lost else max(self.last_success + self._lease * SAFE - time.monotonic(), 0.05)
        async with asyncio.timeout(left):
            return await self._source.beat(self._leases(), self._usage(), stats)
