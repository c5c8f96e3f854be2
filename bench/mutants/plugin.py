"""A pytest plugin: the template database and the order of tests of the runner, and what each test reaches."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest
from _pytest.runner import runtestprotocol

MADE = "MUTANTS_TEMPLATE"
ORDER = "MUTANTS_ORDER"  # a file with the ids of the tests to run, in this order
COVER = "MUTANTS_COVER"  # a directory for what the tests reach
FILES = ("executor.py", "outbox.py", "heart.py")
REACHED = "SELECT funcname FROM pg_stat_user_functions WHERE schemaname = 'shiftboss'"
OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def mark() -> Path:
    return Path(os.environ["SHIFTBOSS_TEST_SERVER_DIR"], "template")


def pytest_sessionstart(session: pytest.Session) -> None:
    if os.environ.get(MADE):
        mark().touch()
    if os.environ.get(COVER):
        session.config.pluginmanager.register(Cover(session.config))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        mark().unlink(missing_ok=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get(ORDER):
        named = {item.nodeid: item for item in items}
        wanted = json.loads(Path(os.environ[ORDER]).read_text())
        items[:] = [named[name] for name in wanted if name in named]


_second: set[str] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: Any, nextitem: pytest.Item | None) -> bool | None:
    """A failure counts only if the test fails again: by itself it may be chance."""
    if not os.environ.get(ORDER) or item.nodeid in _second:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=item, log=False)
    if any(report.failed for report in reports):
        _second.add(item.nodeid)
        item._initrequest()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
    else:
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


class Cover:
    """Records the time of each test, and the functions that it calls, in SQL and in the worker."""

    def __init__(self, config: pytest.Config) -> None:
        worker = getattr(config, "workerinput", {}).get("workerid", "all")
        self._file = Path(os.environ[COVER], f"{worker}.json")
        self._found: dict[str, dict[str, Any]] = {}
        self._now: set[str] = set()
        self._sql: set[str] = set()
        self._passed = False
        self._conftest: Any = None

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code.co_filename.endswith(FILES) and "shiftboss/worker/" in code.co_filename:
            self._now.add(f"{code.co_filename.rpartition('/')[2]}:{code.co_name}")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._watch()
        self._now, self._sql = set(), set()
        self._passed = False
        began = time.monotonic()
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        if self._passed:
            self._found[item.nodeid] = {
                "seconds": round(time.monotonic() - began, 2),
                "python": sorted(self._now),
                "sql": sorted(self._sql),
            }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed = report.passed and (self._passed or report.when == "call")

    def _watch(self) -> None:
        """Before a test's database is dropped, read which functions were called there."""
        if self._conftest is None:
            self._conftest = sys.modules["tests.conftest"]
            dropper, read = self._conftest._dropper, self._read

            class Reading:
                def submit(self, drop: Any, url: str, name: str) -> Any:
                    read(name)
                    return dropper.submit(drop, url, name)

                shutdown = dropper.shutdown

            self._conftest._dropper = Reading()

    def _read(self, name: str) -> None:
        url = self._conftest.database(os.environ["SHIFTBOSS_TEST_SUPERUSER_URL"], name)
        with psycopg.connect(url, autocommit=True) as conn:
            deadline = time.monotonic() + 1  # the statistics of a session arrive with its end
            while conn.execute(OTHERS).fetchone() != (0,) and time.monotonic() < deadline:
                time.sleep(0.01)
            self._sql.update(row[0] for row in conn.execute(REACHED))

    def pytest_sessionfinish(self) -> None:
        if self._found:
            self._file.write_text(json.dumps(self._found))
