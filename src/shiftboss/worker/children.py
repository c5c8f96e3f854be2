"""Child processes for CPU-bound handlers: kept warm, one task each, killed when their time is over."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from contextlib import suppress
from typing import Any

import orjson
import psutil

from shiftboss.model.errors import Defer, ShiftbossError
from shiftboss.model.task import Claimed, Outcome
from shiftboss.worker.context import ReportProgress
from shiftboss.worker.handlers import Handler
from shiftboss.worker.spool import OUTCOMES

HEADER = 4
MB = 1024 * 1024
MOST_IN_FLIGHT = 64 * MB
#: A child's pipe is read for this long after its exit: what it left behind may hold it open for ever.
LAST_WORDS = 0.5
WATCH_SECONDS = 1.0
START_DELAY = 5.0


class ChildDied(ShiftbossError):
    """The process that ran the handler ended before it answered."""


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

    def __init__(self, process: Process, pipes: _Pipes) -> None:
        self.process = process
        self._pipes = pipes

    @classmethod
    async def spawn(cls) -> Child:
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
        return cls(Process(transport, pipes, loop), pipes)

    async def begin(self, request: dict[str, Any], lease: int) -> None:
        """Hand a task over; returns when the child has it."""
        assert self.process.stdin is not None
        body = orjson.dumps(request, default=str)
        try:
            self.process.stdin.write(len(body).to_bytes(HEADER, "big") + body)
            await self.process.stdin.drain()
        except ConnectionError:
            raise await self._death() from None
        await self.receive(lease, None)

    async def receive(self, lease: int, memory_mb: int | None) -> dict[str, Any]:
        """The next message about this lease. Raises ChildDied, also if the child outgrows `memory_mb`."""
        reading = asyncio.ensure_future(self._read(lease))
        try:
            while not (await asyncio.wait({reading}, timeout=memory_mb and WATCH_SECONDS))[0]:
                if memory_mb is not None and (used := self.memory_mb()) > memory_mb:
                    raise ChildDied(f"the process that ran it used {used} MB of {memory_mb} MB")
            return reading.result()
        finally:
            reading.cancel()

    async def _read(self, lease: int) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None
        try:
            while True:
                size = int.from_bytes(await stdout.readexactly(HEADER), "big")
                message: dict[str, Any] = orjson.loads(await stdout.readexactly(size))
                if message["lease"] == lease:
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

    async def run(
        self, handler: Handler, task: Claimed, seconds: float | None, report: ReportProgress
    ) -> Outcome:
        """How the handler ended in a child; a cancelled or lost child is killed, never reused."""
        function = handler.function
        fields = task._asdict() | {"timeout": None}
        request = {
            "module": function.__module__,
            "name": function.__qualname__,
            "task": fields,
            "seconds": seconds,
        }
        async with self._room:
            child = await self._begun(request, task.lease)
            try:
                outcome = await self._outcome(child, task, report)
            except BaseException:
                await asyncio.shield(child.kill())
                raise
            await self._keep(child)
            return outcome

    async def _begun(self, request: dict[str, Any], lease: int) -> Child:
        """A child that has the task in hand. One that died before is no fault of the task."""
        while True:
            fresh = not self._idle
            child = await _spawn() if fresh else self._idle.pop()
            try:
                await child.begin(request, lease)
                return child
            except ChildDied as error:
                if fresh:
                    raise Defer(f"no child process could be started: {error}", START_DELAY) from None
            except BaseException:
                await asyncio.shield(child.kill())
                raise

    async def _outcome(self, child: Child, task: Claimed, report: ReportProgress) -> Outcome:
        while "progress" in (answer := await child.receive(task.lease, self._memory_mb)):
            report(task.lease, task.id, answer["progress"], answer["message"])
        fields = answer["outcome"]
        if fields.get("result") is not None:
            fields["result"] = fields["result"].encode()
        outcome: Outcome = OUTCOMES[answer["kind"]](**fields)
        return outcome

    async def _keep(self, child: Child) -> None:
        if self._memory_mb is not None and child.memory_mb() > self._memory_mb:
            await child.kill()
        else:
            self._idle.append(child)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().kill()


async def _spawn() -> Child:
    try:
        return await Child.spawn()
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
