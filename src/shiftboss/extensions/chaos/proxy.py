"""A TCP proxy whose connections can be stalled, cut, half closed and refused."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Self

Where = Callable[[], tuple[str, int]]
_CHUNK = 65536


class ProxiedLine:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._client, self._server = client, server
        self.flows = asyncio.Event()
        self.flows.set()

    def cut(self) -> None:
        """Reset both sides."""
        self.flows.set()
        for writer in (self._client, self._server):
            _reset(writer)

    def half_close(self, towards_server: bool) -> None:
        """Close the connection in one direction. The other side is not notified until the line is cut."""
        self.flows.clear()
        with suppress(OSError, RuntimeError):
            (self._server if towards_server else self._client).write_eof()


class Proxy:
    """Listens on a free local port and forwards each connection to the address returned by `where()`."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self.lines: list[ProxiedLine] = []
        self.refusing = False
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_CHUNK)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for line in list(self.lines):
            line.cut()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def some(self, share: float) -> list[ProxiedLine]:
        """Return a share of the open connections, oldest first and at least one."""
        return self.lines[: max(1, round(len(self.lines) * share))]

    async def stall(self, lines: list[ProxiedLine], seconds: float) -> None:
        for line in lines:
            line.flows.clear()
        await asyncio.sleep(seconds)
        for line in lines:
            line.flows.set()

    async def half_close(self, lines: list[ProxiedLine], towards_server: bool, seconds: float) -> None:
        for line in lines:
            line.half_close(towards_server)
        await asyncio.sleep(seconds)
        for line in lines:
            line.cut()

    async def refuse(self, seconds: float) -> None:
        """Reset all open connections, and every new one for a while."""
        self.refusing = True
        for line in list(self.lines):
            line.cut()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.refusing = False

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.refusing:
                raise ConnectionRefusedError
            answers, requests = await _open(*self._where())
        except OSError:
            _reset(writer)
            return
        line = ProxiedLine(writer, requests)
        self.lines.append(line)
        try:
            pumps = _pump(line, reader, requests), _pump(line, answers, writer)
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self.lines.remove(line)
            line.cut()


async def _open(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}", limit=_CHUNK)
    return await asyncio.open_connection(host, port, limit=_CHUNK)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, as a firewall or a dead host would."""
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _pump(line: ProxiedLine, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(_CHUNK):
            await line.flows.wait()
            sink.write(data)
            await sink.drain()
        await line.flows.wait()
        sink.write_eof()
    except (OSError, RuntimeError):
        line.cut()
