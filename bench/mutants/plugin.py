"""A pytest plugin: use the template database that the runner has made, and leave it there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MADE = "MUTANTS_TEMPLATE"


def mark() -> Path:
    return Path(os.environ["SHIFTBOSS_TEST_SERVER_DIR"], "template")


def pytest_sessionstart() -> None:
    if os.environ.get(MADE):
        mark().touch()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    mark().unlink(missing_ok=True)
