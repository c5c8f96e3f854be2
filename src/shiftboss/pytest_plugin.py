"""The pytest plugin: fixtures that open a kit per test. It imports Shiftboss only when they are used.

Name the app with the pytest option `shiftboss_app = "tasks:app"`, or override the fixture `shiftboss_app`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from shiftboss.app import App
    from shiftboss.kit import Kit


def _async_fixture() -> Callable[[Any], Any]:
    """Return the decorator of pytest-asyncio if that is installed; anyio accepts plain fixtures."""
    try:
        import pytest_asyncio
    except ImportError:
        return pytest.fixture
    return pytest_asyncio.fixture


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("shiftboss_app", "the app that shiftboss_kit tests, as module:name")


@pytest.fixture
def shiftboss_app(pytestconfig: pytest.Config) -> App:
    """Return the app under test. Override this fixture, or set `shiftboss_app` in pytest's configuration."""
    from shiftboss.model.errors import UsageError
    from shiftboss.worker.process import handlers_of, load

    target = pytestconfig.getini("shiftboss_app")
    if not target:
        hint = 'set shiftboss_app = "tasks:app" in pytest\'s configuration, or define a fixture of that name'
        raise UsageError(f"no app is configured for shiftboss_kit: {hint}", hint=hint)
    app: App = load(target)
    handlers_of(app, target)
    return app


@_async_fixture()
async def shiftboss_kit(shiftboss_app: App) -> AsyncIterator[Kit]:
    """A kit on a new database, for async tests."""
    from shiftboss.kit import Kit

    async with Kit.open(shiftboss_app) as kit:
        yield kit


@pytest.fixture
def shiftboss_sync_kit(shiftboss_app: App) -> Iterator[Any]:
    """A kit on a new database, with blocking methods. `app.sync` uses its database."""
    from shiftboss.kit import Kit

    with Kit.sync(shiftboss_app) as kit:
        yield kit
