"""One slot of a host: starts a worker process, watches it, and restarts it after a crash."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shiftboss.db import Database, Row
from shiftboss.lifecycle import Backoff, sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, EmbeddedServerError
from shiftboss.model.settings import SupervisorSettings
from shiftboss.model.slot import RestartHistory, RestartPolicy, SlotStatus, member_id
from shiftboss.supervisor.orders import Crash, OrderKind, SlotOrder
from shiftboss.supervisor.process import Ending, Process, end_former_process
from shiftboss.supervisor.row import HealthRow
from shiftboss.worker.slot import SlotSpec

log = get_logger(__name__)

#: A process without a database tries to reach it at least this often, in seconds.
TRIES = 15.0
DATABASE_AWAY = {DatabaseUnavailable.exit_code, EmbeddedServerError.exit_code}

Command = Callable[[str, str, str], Sequence[str]]
"""Returns the command line of a worker, given its queue, component and member id."""


@dataclass(frozen=True)
class HostContext:
    """What all slots of a supervisor share."""

    db: Database
    host: str
    settings: SupervisorSettings
    command: Command
    lifeline: int
    serves: str
    """The fleet and the server that the processes work for."""

    @property
    def policy(self) -> RestartPolicy:
        chosen = self.settings
        return RestartPolicy(
            limit=chosen.restart_limit,
            window=chosen.restart_window_seconds,
            first_delay=chosen.restart_delay_seconds,
            max_delay=chosen.restart_delay_max_seconds,
        )


class Slot:
    """Keeps one worker process alive until the slot receives an order to leave."""

    def __init__(self, context: HostContext, queue: str, component: str) -> None:
        self._context, self._db, self._settings = context, context.db, context.settings
        self._row = HealthRow(context.db, context.host, queue, component, lambda: self.leaving)
        self.queue = queue
        self._history = RestartHistory(context.policy.window)
        self.process: Process | None = None
        self.started = time.monotonic()
        self._restarting = self._failed = False
        self._trouble = Backoff(maximum=context.policy.max_delay)
        self.healthy = asyncio.Event()
        self._order: SlotOrder | None = None
        self._ordered = asyncio.Event()
        self._stopping_since: float | None = None

    @property
    def component(self) -> str:
        return self._row.component

    @property
    def member_id(self) -> str:
        return member_id(self._context.host, self.component)

    @property
    def leaving(self) -> bool:
        """Whether the slot will be removed."""
        return self._order is not None and self._order.kind >= OrderKind.DRAIN

    def order(self, kind: OrderKind, reason: str, outcome: str = "lost") -> None:
        """Give the slot an order, unless one of the same or a higher kind is pending."""
        if self._order is None or kind > self._order.kind:
            self._order = SlotOrder(kind, reason, outcome)
            self._ordered.set()

    def observe(self, row: Row, silence: float, asked: float) -> None:
        """Act on the slot's row, as read by a survey that began at `asked`."""
        if asked <= self._row.written:
            return  # the slot has written since: the survey may be older than that
        self._row.former = row["former"]
        if row["restart_ordered"]:
            self.order(OrderKind.RESTART, "restarted by an operator")
        elif self._failed and row["status"] != SlotStatus.FAILED:
            self.order(OrderKind.RESTART, "an operator cleared its failure")
        if self.process is None:
            return
        if reason := self._reason_to_end(row, silence):
            self.order(OrderKind.END, reason)
        if row["status"] == SlotStatus.HEALTHY:
            self.healthy.set()
            self._trouble.reset()

    def _reason_to_end(self, row: Row, silence: float) -> str | None:
        """Return why the process must be ended, or None."""
        status, chosen, process = row["status"], self._settings, self.process
        assert process is not None
        if status == SlotStatus.CRASHED:
            return "was marked as crashed"
        if status == SlotStatus.STARTING:
            return self._slow_start(process, silence)
        if status == SlotStatus.STOPPING and self._order is None:
            self._stopping_since = self._stopping_since or time.monotonic()
            if time.monotonic() - self._stopping_since >= chosen.stop_seconds:
                return f"still running {chosen.stop_seconds:g} s after it began to stop"
        if silence >= chosen.timeout_seconds and not process.lacks_database(
            max(chosen.timeout_seconds, TRIES)
        ):
            return f"hung: no beat for {chosen.timeout_seconds:g} s"
        return None

    def _slow_start(self, process: Process, silence: float) -> str | None:
        chosen = self._settings
        works = process.progresses()  # call this at every check: it compares with the previous call
        limit = max(chosen.start_seconds, chosen.start_max_seconds if works else 0.0)
        if silence < limit or process.lacks_database(max(chosen.start_seconds, TRIES)):
            return None
        return f"no beat within {limit:g} s of its start"

    async def run(self) -> None:
        """Keep a process alive until an order to leave. A database error never ends a healthy process."""
        backoff = Backoff(base=self._settings.restart_delay_seconds)
        while not self.leaving:
            try:
                await self._take_over()
                while not self.leaving:
                    await self._live()
                    backoff.reset()
            except DatabaseError as error:
                log.error("slot has a database error", component=self.component, reason=error.message)
                await sleep(backoff.next(), self._ordered)
            except Exception:  # ending here would open another slot at once, which would fail as well
                log.exception("slot failed", component=self.component)
                await sleep(backoff.next(), self._ordered)
        await self._depart()

    async def _take_over(self) -> None:
        """Bring the row, whatever its status, to a state in which a process can be started."""
        if self.process is not None:
            await self.process.end(self._settings.kill_seconds)
            self.process = None
        row = await self._row.read()
        if row is None or (row["status"] == SlotStatus.STARTING and row["pid"] is None):
            return
        now = time.monotonic()
        window = self._context.policy.window
        self._history = RestartHistory(window, [now - age for age in row["restart_ages"]])
        serves, seconds = self._context.serves, self._settings.stop_seconds
        if row["process"] is not None and await end_former_process(row["process"], seconds, serves):
            log.info("ended a process of a former supervisor", component=self.component, pid=row["pid"])
        if row["status"] == SlotStatus.FAILED:
            await self._wait_as_failed()
        elif row["status"] == SlotStatus.CRASHED:
            await self._recover("crashed before this supervisor started")
        else:
            await self._row.mark_crashed("its supervisor was gone", "lost")
            self._restarting = True

    async def _live(self) -> None:
        """Run one process from its start to its end, and handle the crash if there is one."""
        crash = await self._start() or await self._watch()
        self.process = None
        self.healthy.clear()
        if crash is not None:
            log.warning("worker crashed", component=self.component, reason=crash.reason)
            await self._row.mark_crashed(crash.reason, suspects=crash.suspects)
            await self._recover(crash.reason, crash.counts)

    async def _start(self) -> Crash | None:
        """Start a process. Return the crash if that fails."""
        await self._row.reopen()
        await self._row.set_starting()
        if not self.leaving:
            self._take_order()  # the order concerned the process that has ended
        if self._restarting:  # counted only when it happens, so that the count is the number of restarts
            await self._row.count_restart()
            self._restarting = False
            self._history.add(time.monotonic())
            await self._row.read()
        try:
            process = self._spawn()
        except OSError as error:
            return Crash(f"cannot be started: {error}")
        self.process, self._stopping_since = process, None
        self.started = self._row.written = time.monotonic()
        log.info("worker started", component=self.component, pid=process.pid)
        await self._row.set_process(process.pid, process.identity, process.ended)
        return None

    def _spawn(self) -> Process:
        context = self._context
        command = context.command(self.queue, self.component, self.member_id)
        spec = SlotSpec(
            component=self.component,
            host=context.host,
            lifeline=context.lifeline,
            grace=self._settings.stop_seconds,
            serves=context.serves,
        )
        return Process.start(command, spec)

    async def _watch(self) -> Crash | None:
        """Wait until the process has ended. Return the crash, or None if the end was ordered."""
        process = self.process
        assert process is not None
        while (order := await self._next_order(process)) is None:
            if process.ended.done():
                ending, suspects = process.ended.result(), process.suspects()
                counts = bool(suspects) or ending.code not in DATABASE_AWAY
                # If no handler was running, only started attempts are suspects, not tasks claimed ahead.
                return Crash(str(ending), suspects or (process.started() if counts else []), counts)
        log.info("ending worker", component=self.component, reason=order.reason)
        if order.kind is OrderKind.END:
            suspects = process.suspects(self._settings.timeout_seconds / 2)
            # SIGTERM might wake the worker up, and it would give back all tasks, the guilty one included.
            if suspects:
                process.kill()
            await process.end(self._settings.kill_seconds)
            return Crash(order.reason, suspects)
        ending = await self._drain_and_end(process, order)
        await self._clean_up(order, ending, process.suspects(self._settings.stop_seconds / 2))
        return None

    async def _clean_up(self, order: SlotOrder, ending: Ending, suspects: list[int]) -> None:
        """After an ordered end, return unfinished tasks to the queue and remove the row."""
        member = self.member_id
        if ending.code == -signal.SIGKILL:
            await self._row.mark_crashed(f"{order.reason}; {ending}", order.outcome, suspects)
        elif ending.code != 0:
            died = self._db.workers.worker_died
            await self._row.wait_for(lambda: died(member, "lost", str(ending), suspects))
        await self._row.remove()
        if order.kind is OrderKind.RESTART:
            self._history.forget()

    async def _next_order(self, process: Process) -> SlotOrder | None:
        """Wait for the next order and take it. Return None if the process ends first."""
        await _first(self._ordered, process, None)
        return None if process.ended.done() else self._take_order()

    def _take_order(self) -> SlotOrder | None:
        order = self._order
        self._ordered.clear()
        if not self.leaving:
            self._order = None
        return order

    async def _drain_and_end(self, process: Process, order: SlotOrder) -> Ending:
        """End a process that works correctly; drain it first if the order says so."""
        if order.kind is OrderKind.DRAIN and self.healthy.is_set():
            member, workers = self.member_id, self._db.workers
            await self._row.wait_for(lambda: workers.set_flags(member, draining=True), unless=process.ended)
            await _first(self._ordered, process, self._settings.drain_seconds)  # a stop order ends the drain
        return await process.end(self._settings.stop_seconds)

    async def _recover(self, reason: str, counts: bool = True) -> None:
        """After a crash, wait before the restart; after too many, fail and wait for an operator.

        A crash caused by a missing database does not count towards the limit.
        """
        if not counts:
            await self._wait_for_operator(self._trouble.next())
            return
        policy = self._context.policy
        delay = policy.delay(self._history.recent(time.monotonic()))
        if delay is not None:
            self._restarting = not await self._wait_for_operator(delay)
            return
        failure = f"{policy.limit} restarts within {policy.window:g} s; last: {reason}"
        log.error("worker failed", component=self.component, reason=failure)
        await self._row.set_failed(failure)
        await self._wait_as_failed()

    async def _wait_as_failed(self) -> None:
        self._failed = True
        try:
            await self._wait_for_operator(math.inf)
        finally:
            self._failed = False

    async def _wait_for_operator(self, seconds: float) -> bool:
        """Wait. Return True early if an operator orders a restart (then not counted) or the slot leaves."""
        ends = time.monotonic() + seconds
        while not self._operator_intervened():
            left = ends - time.monotonic()
            if left <= 0:
                return False
            await sleep(min(left, 3600.0), self._ordered)
        return True

    def _operator_intervened(self) -> bool:
        order = self._take_order()
        if order is not None and order.kind is OrderKind.RESTART:
            self._history.forget()
            return True
        return self.leaving

    async def _depart(self) -> None:
        if self.process is not None:
            await self.process.end(self._settings.stop_seconds)
        try:
            await self._row.remove()
        except DatabaseError as error:
            log.warning("cannot remove slot", component=self.component, reason=error.message)


async def _first(event: asyncio.Event, process: Process, seconds: float | None) -> None:
    """Wait until the event is set, the process has ended, or the time is over."""
    wait = asyncio.create_task(event.wait())
    waits: list[asyncio.Future[Any]] = [wait, process.ended]
    await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    wait.cancel()
