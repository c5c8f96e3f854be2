"""Runs pytest in forks of a process that has loaded the libraries, one line of JSON for each run.

Neither the tests nor Shiftboss itself are loaded before the fork: a mutant changes them.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from typing import Any

LIBRARIES = ("pytest", "pytest_asyncio", "pytest_timeout", "xdist", "hypothesis", "psycopg", "psycopg_pool")
LIBRARIES += ("pydantic", "fastapi", "httpx", "uvicorn", "yaml", "typer", "rich", "psutil")


def main() -> None:
    sys.path.insert(0, os.getcwd())
    for name in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(asked)
        print(json.dumps(wait(pid, asked["seconds"])), flush=True)


def run(asked: dict[str, Any]) -> None:
    """In the child: never returns."""
    os.setsid()
    code = 70
    try:
        log = os.open(asked["log"], os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        for stream, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, stream)
        os.environ.update(asked["env"])
        random.seed()
        import pytest

        code = int(pytest.main(asked["words"]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def wait(pid: int, seconds: float) -> int | None:
    """The exit code, or None if it had to be killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    main()
