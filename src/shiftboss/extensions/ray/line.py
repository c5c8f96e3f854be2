"""The connection to a task that runs in Ray."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

from ray.exceptions import NodeDiedError, WorkerCrashedError

from shiftboss.worker.messages import ChildDied, MachineLost, framed, read

#: How long to wait for Ray's reason after the connection to a task was lost.
EXPLAIN_SECONDS: Final = 30.0


class SocketLine:
    """The messages of one task. `end` is the reason why it ended in Ray."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.end: asyncio.Future[Exception] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        if self.end is not None:
            self.end.cancel()

    async def send(self, message: dict[str, Any]) -> None:
        try:
            self._writer.write(framed(message))
            await self._writer.drain()
        except ConnectionError:
            raise await self._death() from None

    async def receive(self, lease: int) -> dict[str, Any]:
        """Return the next message, or raise the reason why the task ended."""
        reading = asyncio.ensure_future(read(self._reader))
        assert self.end is not None
        try:
            waits: set[asyncio.Future[Any]] = {reading, self.end}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():  # its last message may still be in transit
                await asyncio.wait({reading}, timeout=1)
            if not reading.done():
                raise await self._death()
            return reading.result()
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._death() from None
        finally:
            reading.cancel()

    async def _death(self) -> Exception:
        assert self.end is not None
        done, _ = await asyncio.wait({self.end}, timeout=EXPLAIN_SECONDS)
        return self.end.result() if done else MachineLost("the connection to the Ray node was lost")


def death(error: Exception | None) -> Exception:
    """Convert the end of a Ray task without an outcome to one of our errors."""
    if isinstance(error, NodeDiedError) or (isinstance(error, WorkerCrashedError) and "node" in str(error)):
        return MachineLost(f"the Ray node was lost: {_first_line(error)}")
    if error is None:
        return ChildDied("the process of the task closed the connection")
    return ChildDied(f"the process of the task died: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
