"""One Shiftboss and one browser for all tests of the page; a fresh context, thus a fresh log-in, for each."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from shiftboss.model.access import Role
from tests.conftest import TEMPLATE, _fresh
from tests.extensions.page.stage import CHROMIUM, FLAGS, Stage, staged

HERE = Path(__file__).parent
POOLS = ("default=1", "journal=1", "vectorizer=1")
PATIENCE = 20_000  # milliseconds

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="package")
def stage(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with contextmanager(_fresh)(server_url, TEMPLATE) as url, staged(url, folder, *POOLS) as up:
        yield up


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))


@dataclass
class Seen:
    """What a browser did and complained about."""

    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    bytes: int = 0


@pytest.fixture
def open_as(stage: Stage, browser: Browser) -> Iterator[Callable[..., Page]]:
    """`open_as("viewer")`: a page of somebody with that role who has just come in by a link."""
    contexts: list[BrowserContext] = []

    def open(role: str, path: str = "/", **options: object) -> Page:
        context = browser.new_context(base_url=stage.url, **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        code = stage.ask(lambda db: db.tokens.create_login(f"a {role}", Role(role), timedelta(minutes=5)))
        page.goto(f"/login/{code}")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("/")
        if path != "/":
            page.goto(path)
        expect(page.locator("main h1")).to_be_visible()
        return page

    yield open
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of the accessibility checker."""
    script = HERE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        done = subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund"], cwd=HERE, capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"npm cannot install axe-core: {done.stderr[-300:]}")
    return script.read_text()
