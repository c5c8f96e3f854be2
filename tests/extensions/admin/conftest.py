"""A service, and clients with and without a token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from admin_helpers import served

from shiftboss.db import Database
from shiftboss.model.access import Role
from shiftboss.model.settings import Settings


@pytest.fixture
def settings(database_url: str, request: pytest.FixtureRequest) -> Settings:
    more: dict[str, str] = getattr(request, "param", {})
    return Settings.load({"SHIFTBOSS_DATABASE_URL": database_url, **more})


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
