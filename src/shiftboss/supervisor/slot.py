"""One slot: a process that is started, watched, ended and started again, and its row that tells so."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from shiftboss.db import Database, Row
from shiftboss.lifecycle import Backoff, sleep
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable, EmbeddedServerError
from shiftboss.model.settings import SupervisorSettings
from shiftboss.model.slot import RestartHistory, RestartPolicy, SlotStatus, member_id
from shiftboss.supervisor.process import Ending, Process, end_stranger

log = get_logger(__name__)
T = TypeVar("T")

LAST_TRIES = 3
#: A process without a database tries to reach it at least this often, in seconds.
TRIES = 15.0
DATABASE_AWAY = {DatabaseUnavailable.exit_code, EmbeddedServerError.exit_code}

Command = Callable[[str, str, str], Sequence[str]]
"""The command line of a worker, from its queue, component and member id."""


class Kind(IntEnum):
    """What a slot may be told; a greater one stands over a lesser."""

    END = 1
    """End this process, it counts as a crash."""
    RESTART = 2
    """A person wants a new process."""
    DRAIN = 3
    """The slot is no longer wanted: let it finish, then go."""
    STOP = 4
    """The supervisor ends: finish within the grace time, then go."""


class Order(NamedTuple):
    kind: Kind
    reason: str
    outcome: str = "lost"
    """Of the task, if the process has to be killed."""


class Crash(NamedTuple):
    """The end of a process that nobody wanted."""

    reason: str
    suspects: Sequence[int] = ()
    """The leases that may have caused it."""
    counts: bool = True
    """Whether it counts towards the limit on restarts."""


@dataclass(frozen=True)
class Ground:
    """What all slots of a supervisor stand on."""

    db: Database
    host: str
    settings: SupervisorSettings
    command: Command
    lifeline: int
    serves: str
    """Which fleet on which server its processes serve."""

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
    """`run` keeps a process alive until the slot is told to go."""

    def __init__(self, ground: Ground, queue: str, component: str) -> None:
        self._ground, self._db, self._settings = ground, ground.db, ground.settings
        self.queue, self.component = queue, component
        self._history = RestartHistory(ground.policy.window)
        self.process: Process | None = None
        self.started = self._touched = time.monotonic()
        self._former: str | None = None
        self._restarting = self._failed = False
        self._trouble = Backoff(maximum=ground.policy.max_delay)
        self.healthy = asyncio.Event()
        self._order: Order | None = None
        self._ordered = asyncio.Event()
        self._stopping_since: float | None = None

    @property
    def member_id(self) -> str:
        return member_id(self._ground.host, self.component)

    @property
    def leaving(self) -> bool:
        """It will not come back."""
        return self._order is not None and self._order.kind >= Kind.DRAIN

    def order(self, kind: Kind, reason: str, outcome: str = "lost") -> None:
        """Tell the slot what to do; it does so as soon as it can."""
        if self._order is None or kind > self._order.kind:
            self._order = Order(kind, reason, outcome)
            self._ordered.set()

    def sign(self, row: Row) -> Hashable:
        """What changes while the process lives; taking its row at the start is not a beat."""
        return self.started, None if row["status"] == SlotStatus.STARTING else row["last_seen"]

    def observe(self, row: Row, silence: float, asked: float) -> None:
        """What the database says about this slot, by a look that began at `asked`."""
        if asked <= self._touched:
            return  # this slot has written meanwhile: the look may be older than that
        self._former = row["former"]
        if row["restart_ordered"]:
            self.order(Kind.RESTART, "by hand")
        elif self._failed and row["status"] != SlotStatus.FAILED:
            self.order(Kind.RESTART, "its failure was cleared by hand")
        if self.process is None:
            return
        if reason := self._ailment(row, silence):
            self.order(Kind.END, reason)
        if row["status"] == SlotStatus.HEALTHY:
            self.healthy.set()
            self._trouble.reset()

    def _ailment(self, row: Row, silence: float) -> str | None:
        status, chosen, process = row["status"], self._settings, self.process
        assert process is not None
        if status == SlotStatus.CRASHED:
            return "was marked as crashed"
        if status == SlotStatus.STARTING:
            return self._slow_start(process, silence)
        if status == SlotStatus.STOPPING and self._order is None:
            self._stopping_since = self._stopping_since or time.monotonic()
            if time.monotonic() - self._stopping_since >= chosen.stop_seconds:
                return f"still there {chosen.stop_seconds:g} s after it began to stop"
        if silence >= chosen.timeout_seconds and not process.lacks_database(
            max(chosen.timeout_seconds, TRIES)
        ):
            return f"hung: no beat for {chosen.timeout_seconds:g} s"
        return None

    def _slow_start(self, process: Process, silence: float) -> str | None:
        chosen = self._settings
        works = process.progresses()  # asked at every look, as it tells about the time since the last
        limit = max(chosen.start_seconds, chosen.start_max_seconds if works else 0.0)
        if silence < limit or process.lacks_database(max(chosen.start_seconds, TRIES)):
            return None
        return f"no beat within {limit:g} s of its start"

    async def run(self) -> None:
        """Until told to go. Trouble with the database never ends a healthy process."""
        backoff = Backoff(base=self._settings.restart_delay_seconds)
        while not self.leaving:
            try:
                await self._take_over()
                while not self.leaving:
                    await self._live()
                    backoff.reset()
            except DatabaseError as error:
                log.error("a slot is in trouble", component=self.component, reason=error.message)
                await sleep(backoff.next(), self._ordered)
            except Exception:  # given up, another would be opened in its place at once, and break as well
                log.exception("a slot broke", component=self.component)
                await sleep(backoff.next(), self._ordered)
        await self._depart()

    async def _take_over(self) -> None:
        """Whatever the row says, bring it to where a process can be started."""
        if self.process is not None:
            await self.process.end(self._settings.kill_seconds)
            self.process = None
        row = await self._must(self._look)
        if row is None or (row["status"] == SlotStatus.STARTING and row["pid"] is None):
            return
        now = time.monotonic()
        self._history = RestartHistory(self._ground.policy.window, [now - age for age in row["restart_ages"]])
        serves, seconds = self._ground.serves, self._settings.stop_seconds
        if row["process"] is not None and await end_stranger(row["process"], seconds, serves):
            log.info("ended a process of a former supervisor", component=self.component, pid=row["pid"])
        if row["status"] == SlotStatus.FAILED:
            await self._wait_as_failed()
        elif row["status"] == SlotStatus.CRASHED:
            await self._come_back("crashed before this supervisor began")
        else:
            await self._must(lambda: self._mark_crashed("its supervisor was gone", "lost"))
            self._restarting = True

    async def _live(self) -> None:
        """One process, from its start to its end and what follows."""
        crash = await self._start() or await self._watch()
        self.process = None
        self.healthy.clear()
        if crash is not None:
            log.warning("worker crashed", component=self.component, reason=crash.reason)
            await self._must(lambda: self._mark_crashed(crash.reason, suspects=crash.suspects))
            await self._come_back(crash.reason, crash.counts)

    async def _start(self) -> Crash | None:
        """Start a process; None if that worked."""
        await self._must(self._reopen)
        await self._must(lambda: self._db.health.update_status(self.component, SlotStatus.STARTING))
        await self._must(lambda: self._db.health.take_restart_order(self.component))
        if not self.leaving:
            self._take_order()  # it was about what ends here
        if self._restarting:  # counted in the moment it happens, so that the count is the number of restarts
            await self._count_restart()
        try:
            process = self._spawn()
        except OSError as error:
            return Crash(f"cannot be started: {error}")
        self.process, self._stopping_since = process, None
        self.started = self._touched = time.monotonic()
        log.info("worker started", component=self.component, pid=process.pid)
        await self._must(
            lambda: self._db.health.name_process(self.component, process.pid, process.identity),
            unless=process.ended,
        )
        return None

    def _spawn(self) -> Process:
        ground = self._ground
        command = ground.command(self.queue, self.component, self.member_id)
        return Process.start(
            command,
            self.component,
            ground.host,
            ground.lifeline,
            self._settings.stop_seconds,
            ground.serves,
        )

    async def _watch(self) -> Crash | None:
        """Until the process has ended: how it crashed, None if its end was ordered."""
        process = self.process
        assert process is not None
        while (order := await self._next_order(process)) is None:
            if process.ended.done():
                ending, suspects = process.ended.result(), process.accused()
                counts = bool(suspects) or ending.code not in DATABASE_AWAY
                # Where no handler was at work, tasks that were only claimed ahead are not suspects.
                return Crash(str(ending), suspects or (process.started() if counts else []), counts)
        log.info("ending a worker", component=self.component, reason=order.reason)
        if order.kind is Kind.END:
            suspects = process.accused(self._settings.timeout_seconds / 2)
            # SIGTERM might wake it up, and it would give back everything, also the task to blame.
            if suspects:
                process.kill()
            await process.end(self._settings.kill_seconds)
            return Crash(order.reason, suspects)
        ending = await self._part(process, order)
        await self._bury(order, ending, process.accused(self._settings.stop_seconds / 2))
        return None

    async def _bury(self, order: Order, ending: Ending, suspects: list[int]) -> None:
        """After an end that was ordered the row goes, and whatever it did not finish is back in the queue."""
        member = self.member_id
        if ending.code == -signal.SIGKILL:
            reason = f"{order.reason}; {ending}"
            await self._must(lambda: self._mark_crashed(reason, order.outcome, suspects))
        elif ending.code != 0:
            died = self._db.workers.worker_died
            await self._must(lambda: died(member, "lost", str(ending), suspects))
        await self._must(lambda: self._db.health.remove_worker(self.component))
        if order.kind is Kind.RESTART:
            self._history.forget()

    async def _next_order(self, process: Process) -> Order | None:
        """The next order, taken. None: there is none, the process has ended."""
        await _first(self._ordered, process, None)
        return None if process.ended.done() else self._take_order()

    def _take_order(self) -> Order | None:
        order = self._order
        self._ordered.clear()
        if not self.leaving:
            self._order = None
        return order

    async def _part(self, process: Process, order: Order) -> Ending:
        """End a process that did nothing wrong."""
        if order.kind is Kind.DRAIN and self.healthy.is_set():
            member = self.member_id
            await self._must(lambda: self._db.workers.set_flags(member, draining=True), unless=process.ended)
            await _first(self._ordered, process, self._settings.drain_seconds)  # a stop has less patience
        return await process.end(self._settings.stop_seconds)

    async def _come_back(self, reason: str, counts: bool = True) -> None:
        """After a crash: wait, then restart; or fail, and wait for a person. A crash for want of a database
        does not count."""
        if not counts:
            await self._wait_for_pardon(self._trouble.next())
            return
        delay = self._ground.policy.delay(self._history.recent(time.monotonic()))
        if delay is None:
            policy = self._ground.policy
            words = f"{policy.limit} restarts within {policy.window:g} s; last: {reason}"
            log.error("worker failed", component=self.component, reason=words)
            await self._must(
                lambda: self._db.health.update_status(self.component, SlotStatus.FAILED, reason=words)
            )
            await self._wait_as_failed()
        else:
            self._restarting = not await self._wait_for_pardon(delay)

    async def _wait_as_failed(self) -> None:
        self._failed = True
        try:
            await self._wait_for_pardon(math.inf)
        finally:
            self._failed = False

    async def _wait_for_pardon(self, seconds: float) -> bool:
        """Wait; True, and at once, if a person orders a restart or the slot leaves: none is counted then."""
        ends = time.monotonic() + seconds
        while not self._pardoned():
            left = ends - time.monotonic()
            if left <= 0:
                return False
            await sleep(min(left, 3600.0), self._ordered)
        return True

    def _pardoned(self) -> bool:
        order = self._take_order()
        if order is not None and order.kind is Kind.RESTART:
            self._history.forget()
            return True
        return self.leaving

    async def _count_restart(self) -> None:
        row = await self._must(self._look)
        before = None if row is None else row["restart_count"]
        await self._must(lambda: self._db.health.increment_restart_count(self.component, before))
        self._restarting = False
        self._history.add(time.monotonic())
        await self._must(self._look)

    async def _look(self) -> Row | None:
        """The row as it is now; remembered, in case its process takes it away."""
        rows = await self._db.health.survey(self._ground.host)
        row = next((row for row in rows if row["component"] == self.component), None)
        if row is not None:
            self._former = row["former"]
        return row

    async def _mark_crashed(
        self, reason: str, outcome: str = "crashed", suspects: Sequence[int] = ()
    ) -> None:
        """Also when its process had taken the row away, as it does when told to stop by somebody else."""
        await self._reopen()
        await self._db.health.mark_crashed(self.component, reason, outcome=outcome, suspects=suspects)

    async def _reopen(self) -> None:
        """Make sure that there is a row of ours, with the history of the former one."""
        if await self._db.health.get_worker(self.component) is None:
            self.component = await self._db.health.open_slot(self._ground.host, self.queue, self._former)

    async def _depart(self) -> None:
        if self.process is not None:
            await self.process.end(self._settings.stop_seconds)
        try:
            await self._must(lambda: self._db.health.remove_worker(self.component))
        except DatabaseError as error:
            log.warning("could not take away a slot", component=self.component, reason=error.message)

    async def _must(
        self, call: Callable[[], Awaitable[T]], unless: asyncio.Future[Any] | None = None
    ) -> T | None:
        """Write to the database, if need be when it is back; unless that has become pointless."""
        backoff = Backoff(maximum=5.0)
        while True:
            try:
                return await call()
            except DatabaseError as error:
                if error.refused or error.about_values:
                    raise
                log.warning("the database is away", component=self.component, reason=error.message)
                if unless is not None and unless.done():
                    return None
                if self.leaving and backoff.failures >= LAST_TRIES:
                    raise
                await asyncio.sleep(backoff.next())
            finally:
                self._touched = time.monotonic()


async def _first(event: asyncio.Event, process: Process, seconds: float | None) -> None:
    """Until the event is set, the process has ended, or the time is over."""
    wait = asyncio.create_task(event.wait())
    waits: list[asyncio.Future[Any]] = [wait, process.ended]
    await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    wait.cancel()
