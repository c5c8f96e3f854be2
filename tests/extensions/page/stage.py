"""A whole Shiftboss in a separate process: `shiftboss up` with an app."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from shiftboss.db import Database

ROOT = Path(__file__).parents[3]
# The shell first: it needs half of what the whole browser does.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
QUICK = {
    "SHIFTBOSS_WORKER_BEAT_SECONDS": "0.5",
    "SHIFTBOSS_SUPERVISOR_CHECK_SECONDS": "0.3",
    "SHIFTBOSS_SUPERVISOR_RESTART_DELAY_SECONDS": "1",
    "SHIFTBOSS_COORDINATOR_PORT": "0",
    "SHIFTBOSS_BOTS_MODULES": '["tests.extensions.page.survey"]',
}
LINK = re.compile(r"(http://[^/\s]+)/login/(\S+)")
T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    url: str
    code: str
    database_url: str
    pid: int

    def ask(self, work: Callable[[Database], Awaitable[T]]) -> T:
        """Something of the database behind the page."""

        async def run() -> T:
            async with await Database.open(self.database_url) as db:
                return await work(db)

        with ThreadPoolExecutor(1) as thread:  # the browser's driver has a loop in this one
            return thread.submit(asyncio.run, run()).result()


@contextmanager
def staged(database_url: str, folder: Path, *pools: str, **settings: str) -> Iterator[Stage]:
    """Up while the block runs; ended with all its workers after it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= (
        QUICK | {"SHIFTBOSS_DATABASE_URL": database_url, "SHIFTBOSS_DATA_DIR": str(folder)} | settings
    )
    environment["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"
    queues = [word for pool in pools for word in ("--queue", pool)]
    command = [
        sys.executable,
        "-m",
        "shiftboss",
        "up",
        "tests.extensions.page.fleet:app",
        "--port",
        "0",
        *queues,
    ]
    process: Any = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        url, code = _link(process)
        # A pipe that nobody reads fills up, and then blocks whoever writes a log line.
        Thread(target=process.stdout.read, daemon=True).start()
        yield Stage(url, code, database_url, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _link(process: Any) -> tuple[str, str]:
    said = []
    for line in process.stdout:
        said.append(line)
        if found := LINK.search(line):
            return found[1], found[2]
    raise AssertionError("it did not come up:\n" + "".join(said))
