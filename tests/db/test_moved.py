"""A killed embedded server whose port was taken restarts on another one, and clients follow."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.layout import Layout
from shiftboss.db.listen import MISSED, Notice, listen
from shiftboss.model.errors import DatabaseError

Eventually = Callable[..., Any]


async def test_pools_and_listeners_follow(tmp_path: Path, eventually: Eventually) -> None:
    server = EmbeddedServer(tmp_path / "server", settings={"fsync": "off"})
    url = await asyncio.to_thread(server.acquire)
    heard: list[Notice] = []
    ear = asyncio.create_task(_hear(url, heard))
    try:
        async with await Database.open(url) as db:
            await eventually(lambda: heard)
            async with _stranger_at_its_port(server, eventually):
                await eventually(lambda: server.url() not in (None, url), timeout=30)
                await eventually(lambda: _works(db), timeout=60)
                await eventually(lambda: heard.count(MISSED) == 2, timeout=60)
                await db.execute("SELECT pg_notify('news', 'moved')")
                await eventually(lambda: Notice("news", "moved") in heard)
    finally:
        ear.cancel()
        with suppress(asyncio.CancelledError):
            await ear
        server.release()
        await asyncio.to_thread(server.stop)


async def _hear(url: str, heard: list[Notice]) -> None:
    async for notice in listen(url, ["news"]):
        heard += [notice]


async def _works(db: Database) -> bool:
    with suppress(DatabaseError):
        return await db.fetch("SELECT 1 AS one") == [{"one": 1}]
    return False


@asynccontextmanager
async def _stranger_at_its_port(server: EmbeddedServer, eventually: Eventually) -> AsyncIterator[None]:
    """Kill the server; when it comes back, somebody who answers nobody is at its port."""
    state, keeper = server.running(), Layout(server.data_dir).keeper_pid()
    assert state
    assert keeper
    os.kill(keeper, signal.SIGSTOP)
    try:
        os.kill(state.postmaster, signal.SIGKILL)
        stranger = await eventually(lambda: _bound(state.port))
    finally:
        os.kill(keeper, signal.SIGCONT)
    with stranger:
        yield


def _bound(port: int) -> socket.socket | None:
    stranger = socket.socket()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
    except OSError:
        stranger.close()
        return None
    return stranger
