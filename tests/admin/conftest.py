"""A real service on a real socket, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from shiftboss.admin.service import create_app, server_config
from shiftboss.db import Database
from shiftboss.model.access import Role
from shiftboss.model.settings import Settings

Serve = Callable[..., Awaitable[str]]


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


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings.load({"SHIFTBOSS_DATABASE_URL": database_url})


@pytest.fixture
async def url(db: Database, settings: Settings) -> AsyncIterator[str]:
    async with served(db, settings) as address:
        yield address


@pytest.fixture
async def api(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a token."""
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        yield client


@pytest.fixture
async def as_role(db: Database, url: str) -> AsyncIterator[Callable[[str], Awaitable[httpx.AsyncClient]]]:
    """`await as_role("viewer")`: a client with a token of that role."""
    clients: list[httpx.AsyncClient] = []

    async def make(role: str) -> httpx.AsyncClient:
        token = await db.tokens.create_token(f"{role}-{len(clients)}", Role(role))
        client = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=20)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.aclose()
