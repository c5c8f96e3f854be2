"""The supervisor of a host: keeps as many slots as are wanted, looks at them, passes orders on."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from shiftboss.db import Database, Row
from shiftboss.db.lease import Lease
from shiftboss.db.listen import listen
from shiftboss.lifecycle import Service, sleep
from shiftboss.lifecycle.processes import known_dead, own_name
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.settings import Settings, SupervisorSettings
from shiftboss.model.slot import SilenceWatch
from shiftboss.supervisor.slot import Command, Ground, Kind, Order, Slot

log = get_logger(__name__)

LEASE_SECONDS = 6.0
TRY_AGAIN = 0.2


class Supervisor(Service):
    """One per host name and database. Stopping it stops its workers; killing it ends them as well."""

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
        self._db = db.under(self._lease)  # what comes too late must not touch the rows of a successor
        self._watch = SilenceWatch(longest_step=2 * self._settings.check_seconds)
        self._slots: dict[Slot, asyncio.Task[None]] = {}
        self._replacements: dict[Slot, asyncio.Task[None]] = {}
        self._succeeded: set[Slot] = set()
        self._one_at_a_time = asyncio.Lock()
        self._wake = asyncio.Event()
        self._strangers: set[str] = set()
        self.grace = self._settings.stop_seconds + 30

    @classmethod
    def of(cls, db: Database, settings: Settings, target: str) -> Supervisor:
        """The supervisor of this host as the settings have it; the workers' app is `target`, module:app."""
        chosen = settings.supervisor

        def command(queue: str, component: str, member: str) -> list[str]:
            worker = [sys.executable, "-m", "shiftboss", "worker", target]
            return [*worker, "--queue", queue, "--component", component, "--id", member]

        host = chosen.host or socket.gethostname()
        return cls(db, host, chosen.queues, command, chosen, direct_url=settings.database.direct_url)

    @property
    def slots(self) -> list[Slot]:
        return list(self._slots)

    def request_stop(self) -> None:
        super().request_stop()
        self._wake.set()

    async def run(self) -> None:
        serves = (await self._installation.own()).serves
        await self._take_lease()
        # Every worker holds the reading end; when this process is gone, however, they all read its end.
        lifeline, held = os.pipe()
        ground = Ground(self._db, self._host, self._settings, self._command, lifeline, serves)
        ear = asyncio.create_task(self._hear())
        try:
            await self._db.health.begin_supervisor(self._host, os.getpid(), self._wanted)
            for row in await self._db.health.survey(self._host):
                self._add(Slot(ground, row["queue"], row["component"]))
            await self._reconcile(ground)
            self.ready()
            await self._keep(ground)
        finally:
            ear.cancel()
            await self._stop_all()
            os.close(held)
            os.close(lifeline)
            await self._lease.release()

    async def _keep(self, ground: Ground) -> None:
        while not self.stopping.is_set():
            await sleep(self._settings.check_seconds, self._wake)
            self._wake.clear()
            try:
                await self._check(ground)
            except DatabaseError as error:
                self._watch.blind()
                log.warning("cannot look at the slots", reason=error.message)
            except Exception:  # ending here would end every worker of the host
                self._watch.blind()
                log.exception("could not look at the slots")

    async def _check(self, ground: Ground) -> None:
        await self._keep_lease()
        asked = time.monotonic()
        rows = {row["component"]: row for row in await self._db.health.survey(self._host)}
        wanted = await self._db.health.wanted_slots(self._host)
        if wanted is None:  # somebody tidied a supervisor away that was silent for days
            await self._db.health.begin_supervisor(self._host, os.getpid(), self._wanted)
        else:
            self._wanted = wanted
        silences = self._watch.look(
            {name: (row["pid"], row["last_seen"]) for name, row in rows.items()}, asked
        )
        for slot in self.slots:
            if (row := rows.get(slot.component)) is not None:
                slot.observe(row, silences[slot.component], asked)
                self._consider_replacing(ground, slot, row)
        self._adopt(ground, rows)
        await self._reconcile(ground)

    def _adopt(self, ground: Ground, rows: Mapping[str, Row]) -> None:
        """Rows of this host without a slot: the answer that told of them was lost."""
        strangers = set(rows) - {slot.component for slot in self._slots}
        for component in strangers & self._strangers:  # seen twice: it was not just being opened
            self._add(Slot(ground, rows[component]["queue"], component))
        self._strangers = strangers

    async def _reconcile(self, ground: Ground) -> None:
        """Open missing slots, let superfluous ones go, the youngest first."""
        staying = [slot for slot in self._slots if not slot.leaving and slot not in self._succeeded]
        counts = Counter(slot.queue for slot in staying)
        for queue, count in self._wanted.items():
            for _ in range(count - counts[queue]):
                self._add(await self._open(ground, queue))
        for slot in reversed(staying):
            if counts[slot.queue] > self._wanted.get(slot.queue, 0):
                counts[slot.queue] -= 1
                slot.order(Kind.DRAIN, "no longer wanted")

    async def _open(self, ground: Ground, queue: str) -> Slot:
        return Slot(ground, queue, await self._db.health.open_slot(self._host, queue))

    def _add(self, slot: Slot) -> None:
        task = asyncio.create_task(slot.run(), name=slot.component)
        self._slots[slot] = task
        task.add_done_callback(lambda done: self._gone(slot, done))

    def _gone(self, slot: Slot, task: asyncio.Task[None]) -> None:
        del self._slots[slot]
        self._succeeded.discard(slot)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a slot broke", component=slot.component, exc_info=error)

    def _consider_replacing(self, ground: Ground, slot: Slot, row: Row) -> None:
        if slot.leaving or slot in self._replacements or not slot.healthy.is_set():
            return
        if (found := self._too_much(slot, row)) is not None:
            task = asyncio.create_task(self._replace(ground, slot, found))
            self._replacements[slot] = task
            task.add_done_callback(lambda _: self._replacements.pop(slot))

    def _too_much(self, slot: Slot, row: Row) -> Order | None:
        chosen = self._settings
        if slot.process is None:
            return None
        if chosen.max_memory_mb is not None and (used := slot.process.memory()) > chosen.max_memory_mb:
            reason = f"uses {used:.0f} MB, more than {chosen.max_memory_mb} MB"
            return Order(Kind.STOP, reason, outcome="crashed")  # the task that does not let go is to blame
        done = row["tasks_done"]
        if chosen.max_tasks is not None and done >= chosen.max_tasks:
            return Order(Kind.DRAIN, f"has done {done} tasks")
        age = time.monotonic() - slot.started
        if chosen.max_age_seconds is not None and age >= chosen.max_age_seconds:
            return Order(Kind.DRAIN, f"is {age:.0f} s old")
        return None

    async def _replace(self, ground: Ground, slot: Slot, order: Order) -> None:
        """The successor is up before the old one goes: no capacity is lost."""
        async with self._one_at_a_time:
            try:
                successor = await self._open(ground, slot.queue)
                self._add(successor)
                self._succeeded.add(slot)
                details = {"reason": order.reason, "successor": successor.component}
                await self._db.events.note("slot.replaced", component=slot.component, details=details)
            except DatabaseError as error:
                log.warning("cannot replace a worker now", component=slot.component, reason=error.message)
                self._succeeded.discard(slot)
                return
            log.info("replacing a worker", component=slot.component, **details)
            await sleep(self._settings.start_seconds, successor.healthy, self.stopping)
            if successor.healthy.is_set() or order.kind is Kind.STOP:
                slot.order(*order)
            else:
                self._succeeded.discard(slot)
                successor.order(Kind.STOP, "it was to replace another, but did not become healthy")

    async def _take_lease(self) -> None:
        """A supervisor that was killed on another machine holds its name until the lease expires."""
        deadline = time.monotonic() + LEASE_SECONDS + 1.0
        while not await self._lease.acquire():
            if time.monotonic() > deadline:
                raise UsageError(
                    f"a supervisor of host {self._host!r} is already running on this database",
                    hint="stop it first, or give this one another name: SHIFTBOSS_SUPERVISOR_HOST=other",
                )
            await asyncio.sleep(TRY_AGAIN)

    async def _keep_lease(self) -> None:
        """A failover may have lost the lease without another supervisor having taken it."""
        if self._lease.lost.is_set() and not await self._lease.acquire():
            log.error("another supervisor has taken over this host: stopping", host=self._host)
            self.request_stop()

    async def _hear(self) -> None:
        async for notice in listen(self._url, ["shiftboss_health"]):
            if notice.payload in ("", self._host):
                self._wake.set()

    async def _stop_all(self) -> None:
        for task in list(self._replacements.values()):
            task.cancel()
        for slot in self.slots:
            slot.order(Kind.STOP, "the supervisor ends")
        if self._slots:
            await asyncio.wait(self._slots.values())
        with suppress(DatabaseError):
            await self._db.health.end_supervisor(self._host, os.getpid())
