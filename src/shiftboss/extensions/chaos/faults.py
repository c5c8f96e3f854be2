"""Injects the faults of the plan into the fleet, its connections, its disk and its database."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import psutil
import psycopg

from shiftboss.db import Database
from shiftboss.extensions.chaos.fleet import ChaosFleet
from shiftboss.extensions.chaos.places import SESSIONS, ChaosDatabase
from shiftboss.extensions.chaos.plan import Fault
from shiftboss.extensions.chaos.proxy import Proxy
from shiftboss.extensions.chaos.tasks import QUEUE
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import NewTask

log = get_logger(__name__)
T = TypeVar("T")

DISK_BYTES = 8 * 1024 * 1024
#: Longer than the lease of a worker, so that the watchdog must act.
BLOCK_SECONDS = 12.0

_TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid, percent_rank() OVER (ORDER BY backend_start, pid) AS place FROM pg_stat_activity
    WHERE application_name = %s AND datname = current_database() AND pid <> pg_backend_pid()) s
WHERE place <= %s
"""
_PICK = """
SELECT t.id FROM public.tasks t JOIN (SELECT DISTINCT task FROM shiftboss_chaos.changes
    WHERE after = ANY (%(statuses)s) AND seq > (SELECT last_value FROM shiftboss_chaos.seq) - 20000) c
    ON c.task = t.id
WHERE t.status = ANY (%(statuses)s) ORDER BY md5(t.id::text || %(chance)s) LIMIT 20
"""


@dataclass
class Faults:
    """Injects faults. A fault without a victim is counted as missed."""

    place: ChaosDatabase
    fleet: ChaosFleet
    db: Database
    line: Proxy
    grpc: list[Proxy]
    disk: Path | None
    done: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    _lasting: set[asyncio.Task[None]] = field(default_factory=set)

    async def happen(self, fault: Fault) -> None:
        """Start a fault. Faults with a duration continue in the background."""
        name, _, detail = fault.kind.partition(":")
        act: Callable[[Fault, str], Awaitable[bool]] = getattr(self, f"_{name}")
        try:
            met = await act(fault, detail)
        except (psutil.Error, psycopg.Error, DatabaseError, OSError) as error:
            log.debug("fault missed", kind=fault.kind, error=str(error))
            met = False
        (self.done if met else self.missed)[fault.kind] += 1

    def tried(self) -> int:
        return self.done.total() + self.missed.total()

    async def end(self) -> None:
        """Wait until all faults are over, and resume stopped processes."""
        await asyncio.gather(*self._lasting, return_exceptions=True)
        self.fleet.wake()

    def _last(self, work: Awaitable[object]) -> bool:
        async def quietly() -> None:
            with suppress(psutil.Error, psycopg.Error, DatabaseError, OSError):
                await work

        task = asyncio.create_task(quietly())
        self._lasting.add(task)
        task.add_done_callback(self._lasting.discard)
        return True

    def _later(self, seconds: float, undo: Callable[[], Awaitable[object]]) -> bool:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            await patiently(undo)

        return self._last(wait())

    async def _kill(self, fault: Fault, role: str) -> bool:
        victim = _one(self.fleet.victims(role), fault.chance)
        if victim is not None:
            self.fleet.kill(victim)
        return victim is not None

    async def _stop(self, fault: Fault, role: str) -> bool:
        victim = _one(self.fleet.victims(role), fault.chance)
        return victim is not None and self._last(self.fleet.freeze(victim, fault.seconds))

    async def _postgres(self, fault: Fault, how: str) -> bool:
        self.place.hit(signal.SIGQUIT if how == "immediate" else signal.SIGKILL)
        return True

    async def _terminate(self, fault: Fault, _: str) -> bool:
        row = await self.db.fetch_one(_TERMINATE, [SESSIONS, fault.chance])
        return bool(row and row["count"])

    async def _line(self, fault: Fault, how: str) -> bool:
        return self._disturb(self.line, fault, how)

    async def _grpc(self, fault: Fault, how: str) -> bool:
        proxy = _one(self.grpc, fault.chance)
        return proxy is not None and self._disturb(proxy, fault, how)

    def _disturb(self, proxy: Proxy, fault: Fault, how: str) -> bool:
        lines = proxy.some(fault.chance)
        if how == "cut":
            for line in lines:
                line.cut()
        elif how == "stall":
            self._last(proxy.stall(lines, fault.seconds))
        else:
            self._last(proxy.half_close(lines, fault.chance < 0.5, fault.seconds))
        return bool(lines)

    async def _refuse(self, fault: Fault, _: str) -> bool:
        return self._last(self.line.refuse(fault.seconds))

    async def _connections(self, fault: Fault, _: str) -> bool:
        """Allow fewer connections than the fleet needs, and terminate its sessions."""
        limit = "ALTER DATABASE chaos CONNECTION LIMIT "
        await self.db.execute(limit + "3")
        await self.db.fetch_one(_TERMINATE, [SESSIONS, 1.0])
        return self._later(fault.seconds, lambda: self.db.execute(limit + "-1"))

    async def _disk(self, fault: Fault, _: str) -> bool:
        """Fill the disk of the spools while the database is unreachable."""
        return self.disk is not None and self._last(self._fill(str(self.disk / "fill"), fault.seconds))

    async def _fill(self, path: str, seconds: float) -> None:
        try:
            with suppress(OSError), open(path, "wb", buffering=0) as file:  # noqa: ASYNC230
                for _ in range(DISK_BYTES // 4096):
                    file.write(b"\0" * 4096)
            await self.line.refuse(seconds)
        finally:
            os.unlink(path)

    async def _pause(self, fault: Fault, _: str) -> bool:
        kind, name = ("queue", QUEUE) if fault.chance < 0.3 else ("task_type", "chaos.quick")
        await self.db.tasks.pause(kind, name, "chaos")
        return self._later(min(fault.seconds, 5), lambda: self.db.tasks.resume(kind, name))

    async def _cancel(self, fault: Fault, _: str) -> bool:
        ids = await self._some(["Queued", "In Progress"], fault, "cancel")
        return bool(ids and await self.db.tasks.cancel(ids, "chaos"))

    async def _retry(self, fault: Fault, _: str) -> bool:
        ids = await self._some(["Failed", "Cancelled"], fault, "retry")
        return bool(ids and await self.db.tasks.retry(ids))

    async def _some(self, statuses: list[str], fault: Fault, what: str) -> list[UUID]:
        """Choose tasks with these statuses, and record what will be requested for them."""
        chosen = await self.db.fetch(_PICK, {"statuses": statuses, "chance": str(fault.chance)})
        ids = [row["id"] for row in chosen]
        await self.db.execute("INSERT INTO shiftboss_chaos.asked SELECT unnest(%s::uuid[]), %s", [ids, what])
        return ids

    async def _deploy(self, fault: Fault, _: str) -> bool:
        return self._last(self.fleet.deploy())

    async def _block(self, fault: Fault, _: str) -> bool:
        task = NewTask(task_type="chaos.blocking", params={"seconds": BLOCK_SECONDS}, max_attempts=200)
        task.queue, task.priority = QUEUE, 20
        return bool(await self.db.tasks.enqueue([task]))


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of the call, retrying while the database is unreachable."""
    while True:
        try:
            return await call()
        except DatabaseError:
            await asyncio.sleep(0.2)


def _one(some: list[T], chance: float) -> T | None:
    return some[int(chance * len(some))] if some else None


def small_disk(directory: Path) -> Path | None:
    """Mount and return a small disk, or None if this process may not mount one."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return None
    directory.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "shiftboss-chaos", str(directory)]
    done = subprocess.run(words, capture_output=True, check=False)  # noqa: S603
    return None if done.returncode else directory


def remove_disk(directory: Path) -> None:
    subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, check=False)  # noqa: S603, S607
