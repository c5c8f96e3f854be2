"""A real service on a real socket, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from shiftboss.db import Database
from shiftboss.extensions.admin.service import create_app, server_config
from shiftboss.model.settings import Settings


@asynccontextmanager
async def served(db: Database, settings: Settings) -> AsyncIterator[str]:
    server = uvicorn.Server(server_config(create_app(db, settings), settings, "127.0.0.1", 0))
    running = asyncio.create_task(server.serve())
    while not server.started:
        assert not running.done(), "the server did not start"
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running
