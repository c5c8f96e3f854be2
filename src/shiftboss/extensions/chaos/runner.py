"""A run: start the fleet, enqueue tasks, inject faults, wait for the end, check, and clean up."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from shiftboss.db import Database
from shiftboss.db.migrate import is_current, migrate
from shiftboss.extensions.chaos import ledger
from shiftboss.extensions.chaos.checks import PromiseFinding, check
from shiftboss.extensions.chaos.cleaning import clean, install, require_alone
from shiftboss.extensions.chaos.faults import Faults, patiently, remove_disk, small_disk
from shiftboss.extensions.chaos.fleet import ChaosFleet, build
from shiftboss.extensions.chaos.places import SESSIONS, ChaosDatabase, address, through
from shiftboss.extensions.chaos.plan import ChaosPlan, PlannedEvent
from shiftboss.extensions.chaos.proxy import Proxy
from shiftboss.extensions.chaos.report import figures
from shiftboss.extensions.chaos.tasks import QUEUE
from shiftboss.model.errors import DatabaseError, UsageError

Tell = Callable[[str], None]
WARM_SECONDS = 120.0
TOLD_EVERY = 10.0
_LIVE = """
SELECT count(*) AS n, (SELECT last_value FROM shiftboss_chaos.seq) AS seq
FROM public.tasks WHERE task_type LIKE 'chaos.%' AND status IN ('Queued', 'In Progress')
"""
_BACKLOG = "SELECT count(*) AS n FROM public.tasks WHERE queue = %s AND status = 'Queued' AND hold IS NULL"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run."""

    seed: str
    minutes: float = 5.0
    tasks: int = 0
    faults: int = 0
    """A run ends after at least this many minutes, tasks and faults."""
    without: tuple[str, ...] = ()
    fleet: dict[str, int] = field(
        default_factory=lambda: {"coordinator": 2, "supervisor": 2, "slot": 2, "worker": 1, "fed": 2}
    )
    batch: int = 500
    quick: float = 0.9
    fault_seconds: float = 3.0
    patience: float = 180.0
    beside: bool = False
    """Allow a database with other tasks."""
    keep: bool = False


@dataclass
class ChaosRun:
    """The state of a run."""

    make: Callable[[Path], ChaosDatabase]
    """Creates the database of the fleet, with its files in the given directory."""
    options: Options
    tell: Tell
    batches: int = 0
    enqueued: int = 0
    folded: set[UUID] = field(default_factory=set)
    began: float = 0.0
    _sending: set[asyncio.Task[None]] = field(default_factory=set)
    place: ChaosDatabase = field(init=False)
    db: Database = field(init=False)
    """The runner's own connection, which no fault affects."""
    faults: Faults = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        self.plan = ChaosPlan(options.seed, options.batch, options.quick, options.fault_seconds)

    async def run(self) -> dict[str, Any]:
        """Run and return the report."""
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # broken connections are expected
        async with AsyncExitStack() as parts:
            work = await parts.enter_async_context(_directory(self.options.keep))
            self.place = self.make(work / "server")
            await self.place.open()
            parts.push_async_callback(self.place.close)
            own = await parts.enter_async_context(Proxy(lambda: address(self.place.admin_url())))
            line = await parts.enter_async_context(Proxy(lambda: address(self.place.fleet_url())))
            own_url = through(self.place.admin_url(), own.port, "shiftboss-chaos-runner")
            fleet_url = through(self.place.fleet_url(), line.port, SESSIONS)
            await self._prepare(parts, own_url, fleet_url)
            fleet = await self._fleet(parts, work, line, _environment(fleet_url, own_url))
            # The producer uses the proxy of the fleet, so faults affect it, too.
            producer = await parts.enter_async_context(await Database.open(fleet_url))
            await self._storm(producer)
            settled = await self._drain()
            await fleet.stop()
            self.tell("checking")
            findings = [finding async for finding in check(self.db, self.plan, self.batches, self.folded)]
            return await self._report(fleet, findings, settled)

    async def _prepare(self, parts: AsyncExitStack, own_url: str, fleet_url: str) -> None:
        if self.place.owned:
            await migrate(fleet_url)
        elif not await is_current(own_url):
            raise UsageError("the database is not up to date", hint="run `shiftboss db migrate` on it first")
        self.db = await parts.enter_async_context(await Database.open(own_url))
        if not self.options.beside:
            await require_alone(self.db)
        if not self.options.keep:
            parts.push_async_callback(clean, self.db)
        await install(self.db)
        await self.db.tasks.set_limit("task_type", "chaos.limited", max_running=6, max_per_key=1)

    async def _fleet(self, parts: AsyncExitStack, work: Path, line: Proxy, env: dict[str, str]) -> ChaosFleet:
        counts = self.options.fleet
        ports = [_free_port() for _ in range(counts["coordinator"])]
        proxies = [Proxy(partial(_local, port)) for port in ports]
        for proxy in proxies:
            await parts.enter_async_context(proxy)
        disk = None if "disk" in self.options.without else small_disk(work / "disk")
        if disk is not None:
            parts.callback(remove_disk, disk)
        fleet = ChaosFleet(work, env)
        build(fleet, counts, [(port, proxy.port) for port, proxy in zip(ports, proxies, strict=True)], disk)
        parts.push_async_callback(fleet.stop)
        fleet.start()
        self.faults = Faults(self.place, fleet, self.db, line, proxies, disk)
        return fleet

    def _left_out(self) -> list[str]:
        """Return the faults that are excluded or cannot be injected here."""
        possible = {
            "postgres": self.place.owned,
            "connections": self.place.owned,
            "disk": bool(self.faults.disk),
            "grpc": bool(self.faults.grpc),
        }
        return sorted({*self.options.without, *(name for name, can in possible.items() if not can)})

    async def _storm(self, producer: Database) -> None:
        """Enqueue tasks and inject faults until there were enough of both."""
        self.began = time.monotonic()
        await self._enqueue(producer)
        await self._warm()
        self.began = time.monotonic()
        faults = asyncio.create_task(self._inject())
        telling = asyncio.create_task(self._report_progress())
        while not self._over():
            if await self._backlog() > 4 * self.plan.size:
                await asyncio.sleep(0.1)
            else:
                await self._enqueue(producer)
        faults.cancel()
        with suppress(asyncio.CancelledError):
            await faults  # raises if the injection of faults failed
        await self.faults.end()
        await self._enqueue(producer)  # the fleet must still work after the faults
        await asyncio.gather(*self._sending)
        telling.cancel()

    def _over(self) -> bool:
        options, seconds = self.options, time.monotonic() - self.began
        enough = self.faults.tried() >= options.faults and self.enqueued >= options.tasks
        return enough and seconds >= options.minutes * 60

    async def _warm(self) -> None:
        """Wait until the first task completes, because earlier faults would have no effect."""
        self.tell("starting the fleet")
        query = "SELECT FROM shiftboss_chaos.changes WHERE after = 'Complete' LIMIT 1"
        while not await patiently(lambda: self.db.fetch(query)):
            if time.monotonic() - self.began > WARM_SECONDS:
                raise UsageError(
                    "no task completed within two minutes", hint="run with --keep and read the logs"
                )
            await asyncio.sleep(0.1)

    async def _inject(self) -> None:
        for fault in self.plan.faults(self._left_out()):
            await asyncio.sleep(max(0.0, self.began + fault.at - time.monotonic()))
            await self.faults.happen(fault)

    async def _enqueue(self, producer: Database) -> None:
        """Enqueue the next batch. After an error, check whether the tasks were stored."""
        tasks = self.plan.batch(self.batches)
        while True:
            try:
                made = await producer.tasks.enqueue(tasks)
                self.folded |= {
                    task.id for task, one in zip(tasks, made, strict=True) if task.id and not one.created
                }
                break
            except DatabaseError:
                if await self._there(producer, tasks[0].id):
                    keyed = [task.id for task in tasks if task.dedup_key and task.id]
                    self.folded |= {id for id in keyed if not await self._there(producer, id)}
                    break
        self.enqueued += len(tasks)
        self._sending.add(asyncio.create_task(self._send_twice(self.plan.events(self.batches))))
        self.batches += 1

    async def _there(self, db: Database, id: UUID | None) -> bool:
        return bool(await patiently(lambda: db.fetch("SELECT FROM public.tasks WHERE id = %s", [id])))

    async def _send_twice(self, events: list[PlannedEvent]) -> None:
        """Send the events in order, each twice with the same ID. The second one must have no effect."""
        send = self.db.steps.send_event
        for event in [event for event in events for _ in range(2)]:
            await asyncio.sleep(0.7)
            await patiently(partial(send, event.key, event.payload, id=event.id))

    async def _backlog(self) -> int:
        return int((await patiently(lambda: self.db.fetch(_BACKLOG, [QUEUE])))[0]["n"])

    async def _report_progress(self) -> None:
        while True:
            await asyncio.sleep(TOLD_EVERY)
            seconds, backlog = time.monotonic() - self.began, await self._backlog()
            happened = self.faults.done.total()
            self.tell(f"{seconds:.0f} s: {self.enqueued} tasks enqueued, {backlog} wait, {happened} faults")

    async def _drain(self) -> bool:
        """Wait until all tasks have ended. Return False after `patience` seconds without any change."""
        self.tell("waiting for the remaining tasks")
        last, since = -1, time.monotonic()
        while (found := (await patiently(lambda: self.db.fetch(_LIVE)))[0])["n"]:
            if (seq := found["seq"]) != last:
                last, since = seq, time.monotonic()
            if time.monotonic() - since > self.options.patience:
                return False
            await asyncio.sleep(0.2)
        return True

    async def _report(
        self, fleet: ChaosFleet, findings: list[PromiseFinding], settled: bool
    ) -> dict[str, Any]:
        return {
            "clean": settled and not any(finding.broken for finding in findings),
            "seed": self.options.seed,
            "options": asdict(self.options),
            "enqueued": self.enqueued,
            "faults": dict(sorted(self.faults.done.items())),
            "faults_without_a_victim": dict(sorted(self.faults.missed.items())),
            "faults_left_out": self._left_out(),
            "process_ends": dict(sorted(fleet.ends.items())),
            "versions": fleet.version,
            **await figures(self.db, time.monotonic() - self.began),
            "promises": [asdict(finding) for finding in findings],
        }


@asynccontextmanager
async def _directory(keep: bool) -> AsyncIterator[Path]:
    work = tempfile.mkdtemp(prefix="shiftboss-chaos-")
    os.chmod(work, 0o755)  # noqa: S103 -- the server runs as another account
    try:
        yield Path(work)
    finally:
        if not keep:
            await asyncio.to_thread(shutil.rmtree, work, True)


def _environment(fleet_url: str, own_url: str) -> dict[str, str]:
    """Return the environment without the user's own settings, which belong to another fleet."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SHIFTBOSS_", "PG"))}
    return kept | {"SHIFTBOSS_DATABASE_URL": fleet_url, ledger.URL: own_url}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _local(port: int) -> tuple[str, int]:
    return "127.0.0.1", port
