"""Child processes for CPU-bound handlers. Each runs one task at a time and is reused."""

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
from shiftboss.worker.messages import (
    MOST_IN_FLIGHT,
    Callbacks,
    ChildDied,
    framed,
    outcome_of,
    read,
    start_request,
)

MB = 1024 * 1024
#: How long to read a child's pipe after its exit. Processes that it started may hold the pipe open.
DRAIN_SECONDS = 0.5
WATCH_SECONDS = 1.0
START_DELAY = 5.0


class _Pipes(SubprocessStreamProtocol):
    """Streams that end with the process, even if another process holds its pipes open."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._process: asyncio.SubprocessTransport = transport
        self._loop = asyncio.get_running_loop()
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        _kill_group(self._process.get_pid())
        self._loop.call_later(DRAIN_SECONDS, self._process.close)
        self.exited.set()


class Child:
    """A child process, which leads its own process group, and its pipes."""

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
        """Send a task, and return when the child has received it."""
        await self.send(request)
        await self._read(lease)

    async def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(framed(message))
            await self.process.stdin.drain()
        except (ConnectionError, RuntimeError):  # uvloop raises RuntimeError for a closed pipe
            raise await self._death() from None

    async def receive(self, lease: int) -> dict[str, Any]:
        """Return the next message about this lease. Raises ChildDied if it ends or uses too much memory."""
        reading = asyncio.ensure_future(self._read(lease))
        most = self._most_mb
        try:
            while not (await asyncio.wait({reading}, timeout=most and WATCH_SECONDS))[0]:
                if most is not None and (used := self.memory_mb()) > most:
                    raise ChildDied(f"its child process used {used} MB, more than {most} MB")
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
        return ChildDied(f"its child process {ending(self.process.returncode or 0)}")

    def memory_mb(self) -> int:
        try:
            used: int = psutil.Process(self.process.pid).memory_info().rss // MB
        except psutil.Error:  # the process has ended; reading its pipe reports that
            return 0
        return used

    async def kill(self) -> None:
        """Kill the child and all processes of its group."""
        if self.process.returncode is None:
            _kill_group(self.process.pid)
        await self._pipes.exited.wait()


class Children:
    """Runs handlers in at most `size` child processes. One that uses more than `memory_mb` is killed."""

    def __init__(self, size: int, memory_mb: int | None = None) -> None:
        self._room = asyncio.Semaphore(size)
        self._memory_mb = memory_mb
        self._idle: list[Child] = []

    async def run(
        self, handler: Handler, task: Claimed, seconds: float | None, callbacks: Callbacks
    ) -> Outcome:
        """Run a handler in a child and return its outcome. After a cancellation the child is killed."""
        async with self._room:
            child = await self._begun(start_request(handler, task, seconds), task.lease)
            try:
                outcome = await outcome_of(child, task, callbacks)
            except BaseException:
                await asyncio.shield(child.kill())
                raise
            await self._keep(child)
            return outcome

    async def _begun(self, request: dict[str, Any], lease: int) -> Child:
        """Return a child that has received the task. If an idle child has died, use another one."""
        while True:
            fresh = not self._idle
            child = await _spawn(self._memory_mb) if fresh else self._idle.pop()
            try:
                await child.begin(request, lease)
                return child
            except ChildDied as error:
                if fresh:
                    raise Defer(f"cannot start a child process: {error}", START_DELAY) from None
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
    except OSError as error:  # out of memory or processes: not the fault of the task
        raise Defer(f"cannot start a child process: {error}", START_DELAY) from None


def _kill_group(pid: int) -> None:
    """Kill the process and its group, which can outlive the process."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def ending(code: int) -> str:
    """Describe how a process ended."""
    if code >= 0:
        return f"exited with status {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
