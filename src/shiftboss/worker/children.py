"""Child processes for CPU-bound handlers: kept warm, one task each, killed when their time is over."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from contextlib import suppress
from typing import Any

import psutil

from shiftboss.model.errors import Defer
from shiftboss.model.task import Claimed, Outcome
from shiftboss.worker.handlers import Handler
from shiftboss.worker.talk import MOST_IN_FLIGHT, ChildDied, Ears, framed, order, outcome_of, read

MB = 1024 * 1024
#: A child's pipe is read for this long after its exit: what it left behind may hold it open forever.
LAST_WORDS = 0.5
WATCH_SECONDS = 1.0
START_DELAY = 5.0


class _Pipes(SubprocessStreamProtocol):
    """Streams that end with the process, and not only with the last holder of its pipes."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._process: asyncio.SubprocessTransport = transport
        self._loop = asyncio.get_running_loop()
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        _kill_family(self._process.get_pid())
        self._loop.call_later(LAST_WORDS, self._process.close)
        self.exited.set()


class Child:
    """One process, the leader of its own group, and its two pipes."""

    def __init__(self, process: Process, pipes: _Pipes, most_mb: int | None = None) -> None:
        self.process = process
        self._pipes, self._most_mb = pipes, most_mb

    @classmethod
    async def spawn(cls, most_mb: int | None = None) -> Child:
        loop = asyncio.get_running_loop()
        transport, pipes = await loop.subprocess_exec(
            lambda: _Pipes(limit=MOST_IN_FLIGHT, loop=loop),
            sys.executable,
            "-m",
            "shiftboss.worker.child",
            stdin=PIPE,
            stdout=PIPE,
            stderr=None,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,
        )
        return cls(Process(transport, pipes, loop), pipes, most_mb)

    async def begin(self, request: dict[str, Any], lease: int) -> None:
        """Hand a task over; returns when the child has it."""
        await self.tell(request)
        await self._read(lease)

    async def tell(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(framed(message))
            await self.process.stdin.drain()
        except (ConnectionError, RuntimeError):  # uvloop raises the latter for a pipe that is closed already
            raise await self._death() from None

    async def receive(self, lease: int) -> dict[str, Any]:
        """The next message about this lease. Raises ChildDied, also if the child outgrows its memory."""
        reading = asyncio.ensure_future(self._read(lease))
        most = self._most_mb
        try:
            while not (await asyncio.wait({reading}, timeout=most and WATCH_SECONDS))[0]:
                if most is not None and (used := self.memory_mb()) > most:
                    raise ChildDied(f"the process that ran it used {used} MB of {most} MB")
            return reading.result()
        finally:
            reading.cancel()

    async def _read(self, lease: int) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        try:
            while (message := await read(stdout))["lease"] != lease:
                pass
            return message
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._death() from None

    async def _death(self) -> ChildDied:
        await self._pipes.exited.wait()
        return ChildDied(f"the process that ran it {ending(self.process.returncode or 0)}")

    def memory_mb(self) -> int:
        try:
            used: int = psutil.Process(self.process.pid).memory_info().rss // MB
        except psutil.Error:  # it is gone, which its pipe says in a moment
            return 0
        return used

    async def kill(self) -> None:
        """With everything that it started."""
        if self.process.returncode is None:
            _kill_family(self.process.pid)
        await self._pipes.exited.wait()


class Children:
    """At most `size` children at a time; one that uses more than `memory_mb` is ended."""

    def __init__(self, size: int, memory_mb: int | None = None) -> None:
        self._room = asyncio.Semaphore(size)
        self._memory_mb = memory_mb
        self._idle: list[Child] = []

    async def run(self, handler: Handler, task: Claimed, seconds: float | None, ears: Ears) -> Outcome:
        """How the handler ended in a child; a cancelled or lost child is killed, never reused."""
        async with self._room:
            child = await self._begun(order(handler, task, seconds), task.lease)
            try:
                outcome = await outcome_of(child, task, ears)
            except BaseException:
                await asyncio.shield(child.kill())
                raise
            await self._keep(child)
            return outcome

    async def _begun(self, request: dict[str, Any], lease: int) -> Child:
        """A child that has the task in hand. One that died before is no fault of the task."""
        while True:
            fresh = not self._idle
            child = await _spawn(self._memory_mb) if fresh else self._idle.pop()
            try:
                await child.begin(request, lease)
                return child
            except ChildDied as error:
                if fresh:
                    raise Defer(f"no child process could be started: {error}", START_DELAY) from None
            except BaseException:
                await asyncio.shield(child.kill())
                raise

    async def _keep(self, child: Child) -> None:
        if self._memory_mb is not None and child.memory_mb() > self._memory_mb:
            await child.kill()
        else:
            self._idle.append(child)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().kill()


async def _spawn(most_mb: int | None) -> Child:
    try:
        return await Child.spawn(most_mb)
    except OSError as error:  # no memory, no process left: the machine's trouble
        raise Defer(f"no child process could be started: {error}", START_DELAY) from None


def _kill_family(pid: int) -> None:
    """The process and all of its group; a group outlives its leader."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exited with status {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
