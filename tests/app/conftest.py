"""The settings' database is the test's own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _default_database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setenv("SHIFTBOSS_WORKER_POLL_SECONDS", "0.2")
