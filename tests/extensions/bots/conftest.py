"""Runs of bots against the sample extract, without a worker around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from bot_helpers import Heard, Site

from shiftboss.db import Database
from shiftboss.extensions.bots.order import Bots
from shiftboss.extensions.bots.run import Run
from shiftboss.model.settings import Settings


@pytest.fixture
def bot_settings() -> Settings:
    environ = {"HOST_PAUSE": "0", "PRIVATE_SITES": "true", "SOURCE_DIR": "/"}
    return Settings.load({f"SHIFTBOSS_BOTS_{name}": value for name, value in environ.items()})


@pytest.fixture
def perform(db: Database, bot_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`await perform("verify", city="delft", limit=5)`: the counters."""
    monkeypatch.setattr("shiftboss.extensions.bots.run.REPORT_EVERY", 0.0)
    bots = Bots.of(bot_settings)

    async def run(
        bot: str,
        city: str | None = None,
        category: str | None = None,
        *,
        heard: Heard | None = None,
        checkpoint: dict[str, Any] | None = None,
        **params: Any,
    ) -> dict[str, int]:
        order = bots.check(bot, city, category, params)
        report, kept = (heard or Heard()).report, {"checkpoint": checkpoint}
        return await Run(order, db, bot_settings, report, kept=kept).carry_out()

    return run


@pytest.fixture
async def site(unused_tcp_port: int) -> AsyncIterator[Any]:
    """A web server of the test's own: `site.pages["/x"] = 404`, `site.url`, `site.seen`."""
    async with Site(unused_tcp_port) as server:
        yield server
