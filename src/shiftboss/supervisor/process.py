"""One process of a slot: started in a group of its own, seen dead at once, ended politely or not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import psutil

from shiftboss.lifecycle.processes import identity, is_alive, pid_of
from shiftboss.log import get_logger
from shiftboss.model.task import storable
from shiftboss.worker.children import ending
from shiftboss.worker.mark import SIZE, accused, away_for, started
from shiftboss.worker.slot import LAST_WORDS, SlotSpec

log = get_logger(__name__)

POLL = 0.2
MB = 1024 * 1024
BUSY = {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}


class Ending(NamedTuple):
    """How a process ended: exit status, or minus the signal; and what it said last."""

    code: int
    words: str

    def __str__(self) -> str:
        how = ending(self.code).removeprefix("was ")
        return f"{how}: {self.words}" if self.words else how


class Process:
    """A child of this process. `ended` is done as soon as it is dead, and its whole group with it."""

    def __init__(self, child: subprocess.Popen[bytes], words: int, mark: int) -> None:
        self._child, self._words, self._mark = child, words, mark
        self._last_mark: bytes | None = None
        self._cpu = 0.0
        self.pid = child.pid
        self.identity = identity(child.pid)
        self.ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._watch()

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        component: str,
        host: str,
        lifeline: int,
        grace: float,
        serves: str = "",
    ) -> Process:
        """Start `command` for the slot. Raises OSError if it cannot be started."""
        words, mark = _file(), _file(SIZE)
        spec = SlotSpec(
            component=component,
            host=host,
            lifeline=lifeline,
            words=words,
            grace=grace,
            serves=serves,
            mark=mark,
        )
        try:
            child = subprocess.Popen(  # noqa: S603 -- the command is the operator's own
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **spec.variable()},
                pass_fds=(lifeline, words, mark),
                start_new_session=True,  # Ctrl-C is ours to handle; and its forks can be found
            )
        except OSError:
            os.close(words)
            os.close(mark)
            raise
        return cls(child, words, mark)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not on this system, forbidden, or no descriptor is left
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
        # Not waited for yet, it still owns its number: this can only reach the forks it left behind.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._child.wait()
        words = storable(os.pread(self._words, LAST_WORDS, 0).decode(errors="replace"))
        self._last_mark = os.pread(self._mark, SIZE, 0)
        os.close(self._words)
        os.close(self._mark)
        if not self.ended.done():
            self.ended.set_result(Ending(code, " ".join(words.split())))

    def accused(self, older: float = 0.0) -> list[int]:
        """The leases that may have stopped it, also when it is dead; see `shiftboss.worker.mark`."""
        return accused(self._marked(), older)

    def started(self) -> list[int]:
        """The leases whose attempts had started, also when it is dead."""
        return started(self._marked())

    def lacks_database(self, within: float) -> bool:
        """Whether the database failed it within the last `within` seconds: its silence tells nothing."""
        seconds = away_for(self._marked())
        return seconds is not None and seconds < within

    def _marked(self) -> bytes:
        return self._last_mark if self._last_mark is not None else os.pread(self._mark, SIZE, 0)

    def progresses(self) -> bool:
        """Whether it used the processor since it was asked last, or waits for that or for the disk."""
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
        """SIGTERM, and after `seconds` SIGKILL for the whole group."""
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
        """Megabytes of it and its children."""
        try:
            root = psutil.Process(self.pid)
            return sum(map(_resident, [root, *root.children(recursive=True)])) / MB
        except psutil.Error:
            return 0.0


async def end_stranger(name: str, seconds: float, serves: str) -> bool:
    """End a former supervisor's process, if that very one still lives. True if it did.

    A row of `health` is not enough to go by: in a copy of a database it names the original's workers. The
    process itself tells what it `serves`; one that serves something else, or does not tell, is left alone.
    """
    if not is_alive(name):
        return False
    pid = pid_of(name)
    if SlotSpec.served_by(pid) != serves:
        log.warning("left a process alone that does not serve this fleet", pid=pid)
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while is_alive(name) and time.monotonic() < deadline:  # noqa: ASYNC110 -- not our child: nobody tells us
        await asyncio.sleep(0.05)
    if is_alive(name):
        with suppress(ProcessLookupError):
            # our workers lead a group of their own; any other group is not ours to kill
            (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
    return True


def _file(size: int = 0) -> int:
    """A descriptor of a file without a name."""
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
