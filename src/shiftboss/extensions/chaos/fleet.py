"""The fleet under test: real processes that are restarted whenever they exit."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from shiftboss.extensions.chaos.tasks import QUEUE, VERSION

TARGET = "shiftboss.extensions.chaos.tasks:app"
ROLES = ("coordinator", "supervisor", "worker", "fed")
STOP_SECONDS = 30.0
ROLL_SECONDS = 3.0  # between two members while a version is deployed
PR_SET_PDEATHSIG = 1

#: Short leases and fast retries, so that a short run covers many situations. Slots never become failed.
SETTINGS = {
    "DATABASE_POOL_SIZE": "6",
    "WORKER_CONCURRENCY": "10",
    "WORKER_BEAT_SECONDS": "1",
    "WORKER_LEASE_SECONDS": "8",
    "WORKER_POLL_SECONDS": "0.5",
    "WORKER_GRACE_SECONDS": "2",
    "COORDINATOR_HEARTBEAT_SECONDS": "1",
    "COORDINATOR_LEASE_SECONDS": "8",
    "COORDINATOR_POLL_SECONDS": "0.5",
    "SUPERVISOR_CHECK_SECONDS": "1",
    "SUPERVISOR_TIMEOUT_SECONDS": "10",
    "SUPERVISOR_START_SECONDS": "60",
    "SUPERVISOR_STOP_SECONDS": "10",
    "SUPERVISOR_KILL_SECONDS": "2",
    "SUPERVISOR_DRAIN_SECONDS": "10",
    "SUPERVISOR_RESTART_LIMIT": "1000000",
    "SUPERVISOR_RESTART_DELAY_SECONDS": "0.2",
    "SUPERVISOR_RESTART_DELAY_MAX_SECONDS": "2",
    "LEADER_ELECT_SECONDS": "0.5",
    "LEADER_LEASE_SECONDS": "3",
    "LEADER_RESCUE_SECONDS": "1",
    "LEADER_CRASH_CHECK_SECONDS": "1",
    "LEADER_CRASH_TIMEOUT_SECONDS": "10",
}


@dataclass
class FleetProcess:
    """One process that the runner keeps running."""

    role: str
    name: str
    command: list[str]
    data: Path
    process: asyncio.subprocess.Process | None = None


@dataclass
class ChaosFleet:
    """Starts, counts, kills and stops members. It affects only its own processes and their descendants."""

    place: Path
    environment: dict[str, str]
    version: int = 1
    members: list[FleetProcess] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    _keeping: list[asyncio.Task[None]] = field(default_factory=list)
    _hit: set[int] = field(default_factory=set)
    _stopping: bool = False

    def add(self, role: str, number: int, *words: str, data: Path | None = None) -> None:
        name = f"chaos-{role}-{number}"
        self.members.append(FleetProcess(role, name, list(words), data or self.place / name))

    def start(self) -> None:
        self._keeping = [asyncio.create_task(self._keep(member)) for member in self.members]

    async def stop(self) -> None:
        """Stop all members, and kill those that do not stop in time."""
        self._stopping = True
        self.wake()
        await asyncio.gather(*map(self._end, self.members))
        await asyncio.gather(*self._keeping)

    async def _keep(self, member: FleetProcess) -> None:
        while not self._stopping:
            with (self.place / f"{member.name}.log").open("ab") as log:
                member.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "shiftboss", *member.command,
                    env=self._environment(member), cwd=self.place, stdin=asyncio.subprocess.DEVNULL,
                    stdout=log, stderr=log, preexec_fn=_die_with_runner,
                )  # fmt: skip
            code = await member.process.wait()
            self._count(member, member.process.pid, code)
            if not self._stopping:
                await asyncio.sleep(0.2)

    def _count(self, member: FleetProcess, pid: int, code: int) -> None:
        """Count an exit, separating processes that a fault ended from those that exited by themselves."""
        how = "hit" if pid in self._hit or self._stopping else f"ended by itself with {code}"
        self.ends[f"{member.role}: {how}"] += 1
        self._hit.discard(pid)

    def _environment(self, member: FleetProcess) -> dict[str, str]:
        member.data.mkdir(parents=True, exist_ok=True)
        own = {f"SHIFTBOSS_{key}": value for key, value in SETTINGS.items()}
        own |= {"SHIFTBOSS_DATA_DIR": str(member.data), VERSION: str(self.version)}
        return self.environment | own

    def victims(self, role: str) -> list[psutil.Process]:
        """Return the running processes of a role, where slots are the children of supervisors."""
        if role in ROLES:
            return [process for member in self.members if member.role == role for process in _living(member)]
        slots = [child for boss in self.victims("supervisor") for child in _children(boss)]
        if role == "slot":
            return slots
        return [
            child
            for one in (*slots, *self.victims("worker"), *self.victims("fed"))
            for child in _children(one)
        ]

    def kill(self, process: psutil.Process) -> None:
        self._hit.add(process.pid)
        process.kill()

    async def freeze(self, process: psutil.Process, seconds: float) -> None:
        process.suspend()
        try:
            await asyncio.sleep(seconds)
        finally:
            _each([process], psutil.Process.resume)

    async def deploy(self) -> None:
        """Replace all processes that run handlers by a new version, one after the other."""
        self.version += 1
        for member in self.members:
            if member.role != "coordinator":
                await self._end(member)
                await asyncio.sleep(ROLL_SECONDS)

    async def _end(self, member: FleetProcess) -> None:
        """Stop the process of a member, or kill it with its children if it does not stop in time."""
        process = member.process
        if process is None or process.returncode is not None:
            return
        self._hit.add(process.pid)
        tree = _trees([member])
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            _each(tree, psutil.Process.kill)

    def wake(self) -> None:
        """Resume all stopped processes."""
        _each(_trees(self.members), psutil.Process.resume)


def build(
    fleet: ChaosFleet, counts: dict[str, int], coordinators: Sequence[tuple[int, int]], disk: Path | None
) -> None:
    """Add the members. `coordinators` contains the port of each coordinator and of its proxy."""
    feeds = [word for _, proxied in coordinators for word in ("--coordinator", f"127.0.0.1:{proxied}")]
    commands = {
        "coordinator": ["coordinator", "--no-token"],
        "supervisor": ["supervise", TARGET, "--queue", f"{QUEUE}={counts['slot']}"],
        "worker": ["worker", TARGET, "--queue", QUEUE],
        "fed": ["worker", TARGET, "--queue", QUEUE, *feeds],
    }
    for role, words in commands.items():
        for n in range(counts[role] if coordinators or role != "fed" else 0):
            own = ["--id", f"chaos-{role}-{n}"]
            if role == "coordinator":
                own = ["--port", str(coordinators[n][0])]
            elif role == "supervisor":
                own = ["--host", f"chaos-{n}"]
            spool = disk / f"{role}-{n}" if disk and own[0] == "--id" else None
            fleet.add(role, n, *words, *own, "--log-level", "warning", data=spool)


def _trees(members: Sequence[FleetProcess]) -> list[psutil.Process]:
    """Return the processes of these members and all their descendants."""
    found = [process for member in members for process in _living(member)]
    return found + [child for process in found for child in _children(process, recursive=True)]


def _each(processes: Sequence[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            act(process)


def _living(member: FleetProcess) -> list[psutil.Process]:
    if member.process is None or member.process.returncode is not None:
        return []
    with suppress(psutil.Error):
        return [psutil.Process(member.process.pid)]
    return []


def _children(process: psutil.Process, recursive: bool = False) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return sorted(process.children(recursive=recursive), key=lambda child: child.pid)
    return []


def _die_with_runner() -> None:
    """Let the kernel kill this child process when the runner exits or is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)
