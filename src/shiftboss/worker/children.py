"""Child processes for CPU-bound handlers: kept warm, one task each, killed when their time is over."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Any

import orjson

from shiftboss.model.errors import ShiftbossError
from shiftboss.model.task import Claimed
from shiftboss.worker.context import ReportProgress
from shiftboss.worker.handlers import Handler

HEADER = 4


class ChildDied(ShiftbossError):
    """The process that ran the handler ended before it answered."""


class HandlerFailed(ShiftbossError):
    """The handler raised in its child process; the message is its error and traceback."""


class Child:
    """One process and its two pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def spawn(cls) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "shiftboss.worker.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            limit=64 * 1024 * 1024,
        )
        return cls(process)

    async def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        body = orjson.dumps(message, default=str)
        self.process.stdin.write(len(body).to_bytes(HEADER, "big") + body)
        await self.process.stdin.drain()

    async def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        size = int.from_bytes(await self.process.stdout.readexactly(HEADER), "big")
        message: dict[str, Any] = orjson.loads(await self.process.stdout.readexactly(size))
        return message

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class Children:
    """At most `size` children at a time."""

    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self._idle: list[Child] = []

    async def run(self, handler: Handler, task: Claimed, report: ReportProgress) -> bytes | None:
        """The handler's result as JSON, from a child; a cancelled or lost child is killed, never reused."""
        async with self._room:
            child = self._idle.pop() if self._idle else await Child.spawn()
            try:
                result = await self._converse(child, handler, task, report)
            except HandlerFailed:
                self._idle.append(child)
                raise
            except BaseException:
                await asyncio.shield(child.kill())
                raise
            self._idle.append(child)
            return result

    async def _converse(
        self, child: Child, handler: Handler, task: Claimed, report: ReportProgress
    ) -> bytes | None:
        function = handler.function
        fields = task._asdict() | {"timeout": None}
        request = {"module": function.__module__, "name": function.__qualname__, "task": fields}
        try:
            await child.send(request)
            while "progress" in (answer := await child.receive()):
                report(task.lease, task.id, answer["progress"], answer["message"])
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ChildDied(f"the process that ran it {ending(await child.process.wait())}") from None
        if "error" in answer:
            raise HandlerFailed(answer["error"])
        return None if answer["result"] is None else orjson.dumps(answer["result"])

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().kill()


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exited with status {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"
