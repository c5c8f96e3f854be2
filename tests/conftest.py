"""One embedded server for the whole test run, shared by all xdist workers; a fresh database per test.

SHIFTBOSS_TEST_DATABASE_URL names another server to test on, as a role that may make databases.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import inspect
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import hypothesis
import psycopg
import pytest
import structlog
from xdist.scheduler import LoadScopeScheduling

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from tests.page.stage import BROWSERS

SERVER_DIR = "SHIFTBOSS_TEST_SERVER_DIR"
ANOTHER_SERVER = "SHIFTBOSS_TEST_DATABASE_URL"
TEMPLATE = "shiftboss_template"
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_compression": "off",
    "max_connections": "400",
    "file_copy_method": "clone",  # lets the kernel copy the template
}
# What takes longest comes first, so that no core idles at the end.
FIRST = (
    "tests/page/",
    "tests/docs/",
    "tests/queue/test_p",
    "tests/journal/test_fleet",
    "tests/supervisor/",
    "tests/coordinator/test_processes",
    "tests/cli/test_terminal",
    "tests/admin/test_fuzz",
    "tests/worker/test_outage",
    "tests/worker/test_process",
    "tests/app/test_types",
)

# What shares something dear, a fleet and a browser or an analysed journal, runs in one process.
TOGETHER = {
    "tests/page/": "page",
    "tests/queue/test_plans": "plans",
    "tests/ai/test_labelled": "labelled",
    "tests/journal/test_findings": "journal",
    "tests/journal/test_cli": "journal",
    "tests/journal/test_stages": "journal",
}

hypothesis.settings.register_profile("quick", deadline=None, max_examples=40)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=500)
hypothesis.settings.load_profile("quick")  # by hand: --hypothesis-profile=deep


def pytest_configure(config: pytest.Config) -> None:
    # The controller makes the directory; workers inherit its name and become users of one server in it.
    if not hasattr(config, "workerinput"):
        memory = _in_memory()
        directory = os.environ[SERVER_DIR] = tempfile.mkdtemp(prefix="shiftboss-tests-", dir=memory)
        if memory and not config.option.basetemp:  # dozens of tests make a cluster of a thousand files
            config.option.basetemp = f"{directory}/tmp"
    # A developer's own settings must not steer the tests.
    for name in [name for name in os.environ if name.startswith("SHIFTBOSS_")]:
        if not name.startswith("SHIFTBOSS_TEST_"):
            del os.environ[name]
    # Started in the background by a shell without job control, we would hand its deafness to Ctrl-C down.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hundreds of processes are started: none should compile what the one before it has compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _in_memory() -> str | None:
    """A place for the server where making a database takes a tenth of the time; None where there is not enough."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 1024**3
    return str(memory) if roomy and os.access(memory, os.W_OK) else None


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        directory = Path(os.environ.pop(SERVER_DIR))
        EmbeddedServer(directory / "server").stop()
        if (directory / "template").exists() and (url := os.environ.get(ANOTHER_SERVER)):
            admin(url, f"DROP DATABASE {TEMPLATE}")
        shutil.rmtree(directory, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((n for n, name in enumerate(FIRST) if item.nodeid.startswith(name)), 99))
    # In CI nothing is left out: there a missing browser fails the test.
    if os.environ.get("CI") == "true" or any(map(shutil.which, BROWSERS)):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no chromium on this machine"))


class Together(LoadScopeScheduling):
    """Tests go to whichever process is free, one by one but for those that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for start, group in TOGETHER.items() if nodeid.startswith(start)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return Together(config, log)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The shared server, with a migrated template database in it."""
    directory = Path(os.environ[SERVER_DIR])
    server = EmbeddedServer(directory / "server", settings=FAST, linger=0)
    url = os.environ.get(ANOTHER_SERVER) or server.acquire()
    with (directory / "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "template").exists():
            admin(url, f"DROP DATABASE IF EXISTS {TEMPLATE}")
            admin(url, f"CREATE DATABASE {TEMPLATE}")
            asyncio.run(migrate(database(url, TEMPLATE)))
            (directory / "template").touch()
    yield url
    _dropper.shutdown()
    _admin_connection(url).close()
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


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    """A command that ran in this process has chosen what is logged and how: not for the tests to come."""
    yield
    structlog.reset_defaults()


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
    # Copying files is many times as fast as writing a log of it; before PostgreSQL 15 there was no choice.
    strategy = "STRATEGY file_copy" if _admin_connection(server_url).info.server_version >= 150000 else ""
    admin(server_url, f"CREATE DATABASE {name} TEMPLATE {template} {strategy}")
    yield database(server_url, name)
    _dropper.submit(_drop, server_url, name)


_dropper = ThreadPoolExecutor(1)


def _drop(server_url: str, name: str) -> None:
    """While the next test runs, on a connection of its own."""
    with psycopg.connect(database(server_url, "postgres"), autocommit=True) as conn:
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


def database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def admin(url: str, statement: str) -> None:
    _admin_connection(url).execute(statement)


@asynccontextmanager
async def outage(db: Database) -> AsyncIterator[None]:
    """Nobody gets in, and who is in is thrown out."""
    name = db.url.rpartition("/")[2]
    admin(db.url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    admin(db.url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    try:
        yield
    finally:
        admin(db.url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@functools.cache
def _admin_connection(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(database(url, "postgres"), autocommit=True)
