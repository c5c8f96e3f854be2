"""One embedded server for the whole test run, shared by all xdist workers; a fresh database per test."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate

SERVER_DIR = "SHIFTBOSS_TEST_SERVER_DIR"
TEMPLATE = "shiftboss_template"
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "400"}


def pytest_configure(config: pytest.Config) -> None:
    # The controller makes the directory; workers inherit its name and become users of one server in it.
    if not hasattr(config, "workerinput"):
        os.environ[SERVER_DIR] = tempfile.mkdtemp(prefix="shiftboss-tests-")
    # A developer's own settings must not steer the tests.
    for name in [name for name in os.environ if name.startswith("SHIFTBOSS_") and name != SERVER_DIR]:
        del os.environ[name]
    # Hundreds of processes are started: none should compile what the one before it has compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        directory = Path(os.environ.pop(SERVER_DIR))
        EmbeddedServer(directory / "server").stop()
        shutil.rmtree(directory, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # In CI nothing is left out: there a missing browser fails the test.
    if os.environ.get("CI") == "true" or shutil.which("chromium") or shutil.which("chromium-browser"):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no chromium on this machine"))


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The shared server, with a migrated template database in it."""
    directory = Path(os.environ[SERVER_DIR])
    server = EmbeddedServer(directory / "server", settings=FAST, linger=0)
    url = server.acquire()
    with (directory / "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "template").exists():
            admin(url, f"CREATE DATABASE {TEMPLATE}")
            asyncio.run(migrate(database(url, TEMPLATE)))
            (directory / "template").touch()
    yield url
    server.release()


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A fresh database with nothing in it."""
    yield from _fresh(server_url, "template1")


@pytest.fixture
def database_url(server_url: str) -> Iterator[str]:
    """A fresh, migrated database."""
    yield from _fresh(server_url, TEMPLATE)


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """An open `Database` on a fresh, migrated database."""
    async with await Database.open(database_url) as database:
        yield database


@pytest.fixture
def eventually() -> Callable[..., Awaitable[Any]]:
    """`await eventually(condition, timeout=10)`: the condition's first true value, else a failure."""
    return _eventually


async def _eventually(condition: Callable[[], Any], timeout: float = 10.0, what: str | None = None) -> Any:
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not so after {timeout} s: {what or inspect.getsource(condition).strip()}")
        await asyncio.sleep(0.02)


def _fresh(server_url: str, template: str) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    admin(server_url, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield database(server_url, name)
    admin(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def admin(url: str, statement: str) -> None:
    with psycopg.connect(database(url, "postgres"), autocommit=True) as conn:
        conn.execute(statement)
