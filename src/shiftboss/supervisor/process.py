"""The process of a slot: starts it in its own group, notices its death at once, and ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import psutil

from shiftboss.lifecycle.processes import identity, is_alive, pid_of
from shiftboss.log import get_logger
from shiftboss.model.task import storable
from shiftboss.worker.children import ending
from shiftboss.worker.mark import SIZE, away_for, started, suspects
from shiftboss.worker.slot import MESSAGE_BYTES, SlotSpec

log = get_logger(__name__)

POLL = 0.2
MB = 1024 * 1024
BUSY = {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}


class Ending(NamedTuple):
    """The end of a process: its exit status (or minus the signal) and its last message."""

    code: int
    message: str

    def __str__(self) -> str:
        how = ending(self.code).removeprefix("was ")
        return f"{how}: {self.message}" if self.message else how


class Process:
    """A child of this process. `ended` is done as soon as the child and its whole group are dead."""

    def __init__(self, child: subprocess.Popen[bytes], message: int, mark: int) -> None:
        self._child, self._message, self._mark = child, message, mark
        self._last_mark: bytes | None = None
        self._cpu = 0.0
        self.pid = child.pid
        self.identity = identity(child.pid)
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._watch()

    @classmethod
    def start(cls, command: Sequence[str], spec: SlotSpec) -> Process:
        """Start `command` for the slot. Raises OSError if it cannot be started."""
        message, mark = _file(), _file(SIZE)
        spec = replace(spec, words=message, mark=mark)
        try:
            child = subprocess.Popen(  # noqa: S603 -- the command is the operator's own
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **spec.variable()},
                pass_fds=(spec.lifeline, message, mark),
                start_new_session=True,  # keeps Ctrl+C from the worker, and lets us find its forks
            )
        except OSError:
            os.close(message)
            os.close(mark)
            raise
        return cls(child, message, mark)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # missing on this system, forbidden, or out of descriptors
            self._poll(loop)
            return
        loop.add_reader(descriptor, self._on_exit, descriptor)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._child.poll() is None:
            loop.call_later(POLL, self._poll, loop)
        else:
            self._conclude()

    def _on_exit(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._conclude()

    def _conclude(self) -> None:
        # Until it is waited for, its pid is not reused: this can only reach the forks it left behind.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._child.wait()
        message = storable(os.pread(self._message, MESSAGE_BYTES, 0).decode(errors="replace"))
        self._last_mark = os.pread(self._mark, SIZE, 0)
        os.close(self._message)
        os.close(self._mark)
        if not self.ended.done():
            self.ended.set_result(Ending(code, " ".join(message.split())))

    def suspects(self, older: float = 0.0) -> list[int]:
        """Return the leases that may have stopped the process; see `shiftboss.worker.mark`."""
        return suspects(self._marked(), older)

    def started(self) -> list[int]:
        """Return the leases whose attempts had started."""
        return started(self._marked())

    def lacks_database(self, within: float) -> bool:
        """Whether its database calls failed in the last `within` seconds, so that it cannot beat."""
        seconds = away_for(self._marked())
        return seconds is not None and seconds < within

    def _marked(self) -> bytes:
        return self._last_mark if self._last_mark is not None else os.pread(self._mark, SIZE, 0)

    def progresses(self) -> bool:
        """Whether it used CPU time since the previous call, or waits for the CPU or the disk."""
        try:
            process = psutil.Process(self.pid)
            before, self._cpu = self._cpu, sum(process.cpu_times()[:2])
            return self._cpu > before or process.status() in BUSY
        except psutil.Error:
            return False

    def signal(self, number: int) -> None:
        if not self.ended.done():
            self._child.send_signal(number)

    async def end(self, seconds: float) -> Ending:
        """Send SIGTERM, and after `seconds` SIGKILL to the whole group."""
        self.signal(signal.SIGTERM)
        done, _ = await asyncio.wait([self.ended], timeout=seconds)
        if not done:
            self.kill()
        return await self.ended

    def kill(self) -> None:
        if not self.ended.done():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def memory(self) -> float:
        """Return the resident memory of the process and its children in MB."""
        try:
            root = psutil.Process(self.pid)
            return sum(map(_resident, [root, *root.children(recursive=True)])) / MB
        except psutil.Error:
            return 0.0


async def end_former_process(name: str, seconds: float, serves: str) -> bool:
    """End a process of a former supervisor. Return whether it was still alive.

    The row in `health` is not sufficient evidence: in a copy of a database it names the workers of the
    original. So the process must have been started for the fleet that `serves` names.
    """
    if not is_alive(name):
        return False
    pid = pid_of(name)
    if SlotSpec.served_by(pid) != serves:
        log.warning("did not end a process that serves another fleet", pid=pid)
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while is_alive(name) and time.monotonic() < deadline:  # noqa: ASYNC110 -- not our child, so nothing reports its end
        await asyncio.sleep(0.05)
    if is_alive(name):
        with suppress(ProcessLookupError):
            # Workers lead their own process group. Never kill any other group.
            (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
    return True


def _file(size: int = 0) -> int:
    """Return the descriptor of an unnamed temporary file."""
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
