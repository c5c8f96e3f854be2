"""The proxy of the chaos runner, before a server that echoes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shiftboss.extensions.chaos.proxy import Proxy

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line)
    writer.write(b"bye\n")
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Proxy(lambda: ("127.0.0.1", port)) as proxy:
        yield proxy


async def _connect(proxy: Proxy) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    return reader, writer


async def test_a_cut_line_is_reset(proxy: Proxy) -> None:
    reader, writer = await _connect(proxy)
    proxy.some(1.0)[0].cut()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_stalled_line_goes_on(proxy: Proxy) -> None:
    reader, writer = await _connect(proxy)
    stall = asyncio.create_task(proxy.stall(proxy.some(1.0), 0.3))
    await asyncio.sleep(0)
    writer.write(b"late\n")
    answer = asyncio.create_task(reader.readline())
    await asyncio.wait({stall, answer}, return_when=asyncio.FIRST_COMPLETED)
    assert stall.done()
    assert await answer == b"late\n"
    writer.close()


async def test_a_half_closed_line_tells_one_side_only(proxy: Proxy) -> None:
    reader, writer = await _connect(proxy)
    half = asyncio.create_task(proxy.half_close(proxy.some(1.0), False, 0.3))
    assert await reader.read() == b""  # the client hears that the server has gone
    await half
    writer.close()
    reader, writer = await _connect(proxy)
    half = asyncio.create_task(proxy.half_close(proxy.some(1.0), True, 0.3))
    with pytest.raises(ConnectionResetError):  # the server says bye, and the client does not hear it
        await reader.read()
    await half
    writer.close()


async def test_connections_are_refused_for_a_while(proxy: Proxy) -> None:
    reader, writer = await _connect(proxy)
    refuse = asyncio.create_task(proxy.refuse(60))
    with pytest.raises(ConnectionResetError):
        await reader.read()
    refused, other = await asyncio.open_connection("127.0.0.1", proxy.port)
    with pytest.raises(ConnectionResetError):
        await refused.read()
    refuse.cancel()
    await asyncio.wait({refuse})
    _, last = await _connect(proxy)
    for each in (writer, other, last):
        each.close()
