"""One server for the whole test run, shared by all xdist workers; a fresh database per test, owned by an ordinary role.

`--server` names another server than the embedded one, see tests/servers.py.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import inspect
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import hypothesis
import psycopg
import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from tests import servers
from tests.extensions.page.stage import BROWSERS

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # as our commands do
SERVER_DIR = "SHIFTBOSS_TEST_SERVER_DIR"
TEMPLATE = "shiftboss_template"
EMPTY = "shiftboss_empty"  # has nothing but the extensions that only a superuser can create
FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "file_copy_method": "clone",  # lets the kernel copy the template
}
# What takes longest comes first, so that no core idles at the end.
FIRST = (
    "tests/test_demo",
    "tests/extensions/page/",
    "tests/docs/",
    "tests/queue/test_p",
    "tests/extensions/journal/test_fleet",
    "tests/supervisor/",
    "tests/extensions/grpc/test_processes",
    "tests/cli/test_terminal",
    "tests/extensions/admin/test_fuzz",
    "tests/worker/test_outage",
    "tests/worker/test_process",
    "tests/app/test_types",
)

# What shares something dear, a fleet and a browser or an analysed journal, runs in one process.
TOGETHER = {
    "tests/extensions/page/": "page",
    "tests/queue/test_plans": "plans",
    "tests/extensions/ai/test_labelled": "labelled",
    "tests/extensions/journal/test_findings": "journal",
    "tests/extensions/journal/test_cli": "journal",
    "tests/extensions/journal/test_stages": "journal",
}

hypothesis.settings.register_profile("quick", deadline=None, max_examples=40)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=500)
hypothesis.settings.load_profile("quick")  # by hand: --hypothesis-profile=deep


_started: list[subprocess.Popen[bytes]] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server", default="embedded", help="embedded, debian, debian-pgbouncer, or a superuser's URL"
    )

    parser.addoption(
        "--encrypted",
        action="store_true",
        help="encrypt payloads: what may not be in clear text is found out",
    )


def pytest_configure(config: pytest.Config) -> None:
    # The controller makes the directory; workers inherit its name and become users of one server in it.
    if not hasattr(config, "workerinput"):
        memory = servers.in_memory()
        directory = os.environ[SERVER_DIR] = tempfile.mkdtemp(prefix="shiftboss-tests-", dir=memory)
        if memory and not config.option.basetemp:  # dozens of tests make a cluster of a thousand files
            config.option.basetemp = f"{directory}/tmp"
    # A developer's own settings must not steer the tests.
    for name in [name for name in os.environ if name.startswith("SHIFTBOSS_")]:
        if not name.startswith("SHIFTBOSS_TEST_"):
            del os.environ[name]
    if config.getoption("--encrypted"):
        os.environ["SHIFTBOSS_ENCRYPTION_KEYS"] = "c2hpZnRib3NzIHRlc3RzIHVzZSB0aGlzIGtleSAzMiE="
    os.environ["SHIFTBOSS_DATABASE_LINGER_SECONDS"] = "2"  # a server that outlives its test delays the next
    if not hasattr(config, "workerinput"):
        _started.extend(servers.choose(config.getoption("--server"), Path(directory)))
    # Started in the background by a shell without job control, we would hand its deafness to Ctrl-C down.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Hundreds of processes are started: none should compile what the one before it has compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        directory = Path(os.environ.pop(SERVER_DIR))
        EmbeddedServer(directory / "server").stop()
        if (directory / "template").exists() and config.option.server not in servers.OURS:
            for name in (TEMPLATE, EMPTY):
                admin("", f"DROP DATABASE {name}")
        servers.stop(_started)
        shutil.rmtree(directory, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not _concerned(item)])
    items[:] = filter(_concerned, items)
    items.sort(key=lambda item: next((n for n, name in enumerate(FIRST) if item.nodeid.startswith(name)), 99))
    # In CI nothing is left out: there a missing browser fails the test.
    if os.environ.get("CI") == "true" or any(map(shutil.which, BROWSERS)):
        return
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason="no chromium on this machine"))


def _concerned(item: pytest.Item) -> bool:
    """Whether the chosen server can make a difference to this test; on the embedded server all tests run."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if os.environ.get(servers.POOLER):  # a test with servers of its own has no pooler
        return "server_url" in fixtures and item.get_closest_marker("session") is None
    return not os.environ.get(servers.ODD) or not fixtures.isdisjoint({"server_url", "database_url"})


class Together(LoadScopeScheduling):
    """Tests go to whichever process is free, one by one but for those that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for start, group in TOGETHER.items() if nodeid.startswith(start)), nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that took its process down. Unlike in xdist, it is not tried again."""
        workload = self.assigned_work.pop(node)
        pending = [(scope, name) for scope, unit in workload.items() for name in unit if not unit[name]]
        if not pending:
            return None
        scope, crashed = pending[0]
        workload[scope][crashed] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        # Where several processes died, one may be dead without our knowledge, and the successor of one may
        # still collect its tests.
        if node in self.registered_collections:
            with suppress(OSError):
                super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Name the test at once, not only at the end: a test over its time limit ends its process."""
    print(f"\n{crashitem} took its process down, or exceeded its time limit", file=sys.stderr)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return Together(config, log)


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The shared server, with a migrated template database in it."""
    directory = Path(os.environ[SERVER_DIR])
    server = EmbeddedServer(directory / "server", settings=FAST, linger=0)
    superuser = os.environ[servers.SUPERUSER] = os.environ.get(servers.SUPERUSER) or server.acquire()
    with (directory / "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        url = servers.ordinary(superuser)
        if not (directory / "template").exists():
            _make_templates(url)
            (directory / "template").touch()
    yield url
    _dropper.shutdown()
    _admin_connection("postgres").close()
    _admin_connection.cache_clear()
    server.release()


def _make_templates(url: str) -> None:
    owner = urlsplit(url).username
    for name, source in ((EMPTY, "template1"), (TEMPLATE, EMPTY)):
        admin(url, f"DROP DATABASE IF EXISTS {name}")
        admin(url, f"CREATE DATABASE {name} OWNER {owner} TEMPLATE {source}")
        if _has_vector() and name == EMPTY:
            with psycopg.connect(as_superuser(database(url, EMPTY)), autocommit=True) as conn:
                conn.execute("CREATE EXTENSION IF NOT EXISTS vector")
    asyncio.run(migrate(servers.direct(database(url, TEMPLATE))))
    with psycopg.connect(servers.direct(database(url, TEMPLATE))) as conn:  # each copy is a fleet of its own
        conn.execute("DELETE FROM shiftboss.installation")


def as_superuser(url: str) -> str:
    """The same database, as superuser and without a pooler."""
    return database(os.environ[servers.SUPERUSER], urlsplit(url).path[1:])


def _has_vector() -> bool:
    """Debian 12 has no pgvector for its PostgreSQL."""
    query = "SELECT FROM pg_available_extensions WHERE name = 'vector'"
    return _admin_connection("postgres").execute(query).fetchone() is not None


@pytest.fixture
def empty_database_url(server_url: str) -> Iterator[str]:
    """A fresh database with nothing in it."""
    yield from _fresh(server_url, EMPTY)


@pytest.fixture
def bare_database_url(server_url: str) -> Iterator[str]:
    """A fresh database without even the extensions."""
    yield from _fresh(server_url, "template1")


@pytest.fixture
def database_url(server_url: str) -> Iterator[str]:
    """A fresh, migrated database."""
    yield from _fresh(server_url, TEMPLATE)


@pytest.fixture
def login(database_url: str) -> Iterator[str]:
    """The URL of the test's database for a role of its own that may log in and nothing else."""
    name = "stranger_" + database_url.rpartition("_")[2]
    with psycopg.connect(as_superuser(database_url), autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{servers.PASSWORD}'")
        parts = urlsplit(servers.direct(database_url))
        address = parts.netloc.rpartition("@")[2]
        yield urlunsplit(parts._replace(netloc=f"{name}:{servers.PASSWORD}@{address}"))
        conn.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """An open `Database` on a fresh, migrated database."""
    async with await Database.open(database_url) as database:
        yield database


@pytest.fixture(autouse=True)
def _plain_logs() -> Iterator[None]:
    """Undo what a command that ran in this process set up."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def eventually() -> Callable[..., Awaitable[Any]]:
    """`await eventually(condition, timeout=30)` returns the condition's first true value, or fails the test."""
    return _eventually


async def _eventually(condition: Callable[[], Any], timeout: float = 30.0, what: str | None = None) -> Any:
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
    strategy = "STRATEGY file_copy" if _admin_connection("postgres").info.server_version >= 150000 else ""
    owner = urlsplit(server_url).username
    admin(server_url, f"CREATE DATABASE {name} OWNER {owner} TEMPLATE {template} {strategy}")
    yield database(server_url, name)
    _dropper.submit(_drop, server_url, name)


_dropper = ThreadPoolExecutor(1)


def _drop(server_url: str, name: str) -> None:
    """While the next test runs, on a connection of its own."""
    with psycopg.connect(database(os.environ[servers.SUPERUSER], "postgres"), autocommit=True) as conn:
        conn.execute(f"DROP DATABASE {name} WITH (FORCE)")


def database(url: str, name: str) -> str:
    """The URL of another database on the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def admin(url: str, statement: str) -> None:
    """Run a statement as superuser, in the database `postgres` of the server that `url` is on."""
    _admin_connection("postgres").execute(statement)


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
def _admin_connection(name: str) -> psycopg.Connection[Any]:
    return psycopg.connect(database(os.environ[servers.SUPERUSER], name), autocommit=True)
