"""The supervisor of a host: keeps the wanted number of slots, checks them and passes orders on."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from shiftboss.db import Database, Row
from shiftboss.db.lease import Lease
from shiftboss.db.listen import listen
from shiftboss.lifecycle import Service, sleep
from shiftboss.lifecycle.processes import known_dead, own_name
from shiftboss.lifecycle.waiting import when_up
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.settings import Settings, SupervisorSettings
from shiftboss.model.slot import SilenceWatch
from shiftboss.supervisor.orders import OrderKind, SlotOrder
from shiftboss.supervisor.slot import Command, HostContext, Slot

log = get_logger(__name__)

LEASE_SECONDS = 6.0
TRY_AGAIN = 0.2

#: The pool whose workers serve every queue.
ALL = "all"


class Supervisor(Service):
    """Supervises one host name on one database. Its workers end when it is stopped or killed."""

    def __init__(
        self,
        db: Database,
        host: str,
        slots: Mapping[str, int],
        command: Command,
        settings: SupervisorSettings | None = None,
        *,
        direct_url: str | None = None,
    ) -> None:
        super().__init__()
        self._host, self._command = host, command
        self._settings = settings or SupervisorSettings()
        self._wanted = dict(slots)
        self._url = direct_url or db.url
        self._lease = Lease(db, f"supervisor {host}", LEASE_SECONDS, own_name(), dead=known_dead)
        self._installation = db.installation
        self._db = db.under(self._lease)  # late writes must not change the rows of a successor
        self._watch = SilenceWatch(longest_step=2 * self._settings.check_seconds)
        self._slots: dict[Slot, asyncio.Task[None]] = {}
        self._replacements: dict[Slot, asyncio.Task[None]] = {}
        self._succeeded: set[Slot] = set()
        self._one_at_a_time = asyncio.Lock()
        self._wake = asyncio.Event()
        self._unclaimed: set[str] = set()
        self.grace = self._settings.stop_seconds + 30

    @classmethod
    def of(cls, db: Database, settings: Settings, target: str, log_level: str) -> Supervisor:
        """Create the supervisor of this host from the settings. Its workers run `target`, a `module:app`."""
        chosen = settings.supervisor

        def command(queue: str, component: str, member: str) -> list[str]:
            worker = [sys.executable, "-m", "shiftboss", "worker", target, "--log-level", log_level]
            queues = [] if queue == ALL else ["--queue", queue]
            return [*worker, *queues, "--component", component, "--id", member]

        host = chosen.host or socket.gethostname()
        return cls(db, host, chosen.queues, command, chosen, direct_url=settings.database.direct_url)

    @property
    def slots(self) -> list[Slot]:
        return list(self._slots)

    def request_stop(self) -> None:
        super().request_stop()
        self._wake.set()

    async def run(self) -> None:
        up = partial(when_up, stopping=self.stopping)
        serves = (await up(self._installation.own)).serves
        await self._take_lease()
        # Every worker holds the reading end, and reads end-of-file when this process ends for any reason.
        lifeline, held = os.pipe()
        context = HostContext(self._db, self._host, self._settings, self._command, lifeline, serves)
        listener = asyncio.create_task(self._listen())
        try:
            await up(lambda: self._db.health.begin_supervisor(self._host, os.getpid(), self._wanted))
            for row in await up(lambda: self._db.health.survey(self._host)):
                self._add(Slot(context, row["queue"], row["component"]))
            await up(lambda: self._reconcile(context))
            self.ready()
            await self._keep(context)
        finally:
            listener.cancel()
            await self._stop_all()
            os.close(held)
            os.close(lifeline)
            await self._lease.release()

    async def _keep(self, context: HostContext) -> None:
        while not self.stopping.is_set():
            await sleep(self._settings.check_seconds, self._wake)
            self._wake.clear()
            try:
                await self._check(context)
            except DatabaseError as error:
                self._watch.blind()
                log.warning("cannot check the slots", reason=error.message)
            except Exception:  # ending here would end every worker of the host
                self._watch.blind()
                log.exception("slot check failed")

    async def _check(self, context: HostContext) -> None:
        await self._keep_lease()
        asked = time.monotonic()
        rows = {row["component"]: row for row in await self._db.health.survey(self._host)}
        wanted = await self._db.health.wanted_slots(self._host)
        if wanted is None:  # the row was removed after this supervisor was silent for days
            await self._db.health.begin_supervisor(self._host, os.getpid(), self._wanted)
        else:
            self._wanted = wanted
        silences = self._watch.look(
            {name: (row["pid"], row["last_seen"]) for name, row in rows.items()}, asked
        )
        for slot in self.slots:
            if (row := rows.get(slot.component)) is not None:
                slot.observe(row, silences[slot.component], asked)
                self._consider_replacing(context, slot, row)
        self._adopt(context, rows)
        await self._reconcile(context)

    def _adopt(self, context: HostContext, rows: Mapping[str, Row]) -> None:
        """Add slots for rows that have none, because the reply of `open_slot` was lost."""
        unclaimed = set(rows) - {slot.component for slot in self._slots}
        for component in unclaimed & self._unclaimed:  # seen twice, so it is not being opened right now
            self._add(Slot(context, rows[component]["queue"], component))
        self._unclaimed = unclaimed

    async def _reconcile(self, context: HostContext) -> None:
        """Open missing slots and drain superfluous ones, the newest first."""
        staying = [slot for slot in self._slots if not slot.leaving and slot not in self._succeeded]
        counts = Counter(slot.queue for slot in staying)
        for queue, count in self._wanted.items():
            for _ in range(count - counts[queue]):
                self._add(await self._open(context, queue))
        for slot in reversed(staying):
            if counts[slot.queue] > self._wanted.get(slot.queue, 0):
                counts[slot.queue] -= 1
                slot.order(OrderKind.DRAIN, "no longer wanted")

    async def _open(self, context: HostContext, queue: str) -> Slot:
        return Slot(context, queue, await self._db.health.open_slot(self._host, queue))

    def _add(self, slot: Slot) -> None:
        task = asyncio.create_task(slot.run(), name=slot.component)
        self._slots[slot] = task
        task.add_done_callback(lambda done: self._gone(slot, done))

    def _gone(self, slot: Slot, task: asyncio.Task[None]) -> None:
        del self._slots[slot]
        self._succeeded.discard(slot)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("slot failed", component=slot.component, exc_info=error)

    def _consider_replacing(self, context: HostContext, slot: Slot, row: Row) -> None:
        if slot.leaving or slot in self._replacements or not slot.healthy.is_set():
            return
        if (order := self._limit_exceeded(slot, row)) is not None:
            task = asyncio.create_task(self._replace(context, slot, order))
            self._replacements[slot] = task
            task.add_done_callback(lambda _: self._replacements.pop(slot))

    def _limit_exceeded(self, slot: Slot, row: Row) -> SlotOrder | None:
        chosen = self._settings
        if slot.process is None:
            return None
        if chosen.max_memory_mb is not None and (used := slot.process.memory()) > chosen.max_memory_mb:
            reason = f"uses {used:.0f} MB, more than {chosen.max_memory_mb} MB"
            return SlotOrder(
                OrderKind.STOP, reason, outcome="crashed"
            )  # a task that does not end is to blame
        done = row["tasks_done"]
        if chosen.max_tasks is not None and done >= chosen.max_tasks:
            return SlotOrder(OrderKind.DRAIN, f"has done {done} tasks")
        age = time.monotonic() - slot.started
        if chosen.max_age_seconds is not None and age >= chosen.max_age_seconds:
            return SlotOrder(OrderKind.DRAIN, f"is {age:.0f} s old")
        return None

    async def _replace(self, context: HostContext, slot: Slot, order: SlotOrder) -> None:
        """Start a successor, then end the old process, so that no capacity is lost."""
        async with self._one_at_a_time:
            try:
                successor = await self._open(context, slot.queue)
                self._add(successor)
                self._succeeded.add(slot)
                details = {"reason": order.reason, "successor": successor.component}
                await self._db.events.note("slot.replaced", component=slot.component, details=details)
            except DatabaseError as error:
                log.warning("cannot replace worker", component=slot.component, reason=error.message)
                self._succeeded.discard(slot)
                return
            log.info("replacing worker", component=slot.component, **details)
            await sleep(self._settings.start_seconds, successor.healthy, self.stopping)
            if successor.healthy.is_set() or order.kind is OrderKind.STOP:
                slot.order(*order)
            else:
                self._succeeded.discard(slot)
                successor.order(OrderKind.STOP, "did not become healthy, so it replaces no worker")

    async def _take_lease(self) -> None:
        """Wait for the lease: a supervisor killed on another machine holds it until it expires."""
        deadline = 0.0

        def start_over() -> None:
            nonlocal deadline
            deadline = time.monotonic() + LEASE_SECONDS + 1.0

        start_over()
        while not await when_up(self._lease.acquire, start_over, self.stopping):
            if time.monotonic() > deadline:
                raise UsageError(
                    f"a supervisor of host {self._host!r} is already running on this database",
                    hint="stop it first, or give this one another name: SHIFTBOSS_SUPERVISOR_HOST=other",
                )
            await asyncio.sleep(TRY_AGAIN)

    async def _keep_lease(self) -> None:
        """Acquire the lease again if a failover lost it; stop if another supervisor holds it."""
        if self._lease.lost.is_set() and not await self._lease.acquire():
            log.error("another supervisor has taken over this host: stopping", host=self._host)
            self.request_stop()

    async def _listen(self) -> None:
        async for notice in listen(self._url, ["shiftboss_health"]):
            if notice.payload in ("", self._host):
                self._wake.set()

    async def _stop_all(self) -> None:
        for task in list(self._replacements.values()):
            task.cancel()
        for slot in self.slots:
            slot.order(OrderKind.STOP, "the supervisor stops")
        if self._slots:
            await asyncio.wait(self._slots.values())
        with suppress(DatabaseError):
            await self._db.health.end_supervisor(self._host, os.getpid())
