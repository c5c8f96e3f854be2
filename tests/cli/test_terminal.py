"""Commands on a real terminal: tables, live screens, keys, Ctrl+C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask
from tests.cli.test_commands import drain, enqueue

ROOT = Path(__file__).resolve().parents[2]
Start = Callable[..., pexpect.spawn]


@pytest.fixture
def start(database_url: str) -> Iterator[Start]:
    """`start("status")`: the command on a terminal of 40 lines and 160 columns."""
    started: list[pexpect.spawn] = []

    def spawn(*args: str, **env: str) -> pexpect.spawn:
        child = pexpect.spawn(
            sys.executable,
            ["-m", "shiftboss", *args],
            env=os.environ | {"SHIFTBOSS_DATABASE_URL": database_url, "TERM": "xterm-256color"} | env,
            cwd=str(ROOT),
            dimensions=(40, 160),
            encoding="utf-8",
            timeout=60,
        )
        started.append(child)
        return child

    yield spawn
    for child in started:
        child.close(force=True)


def test_tables_have_headings(start: Start, database_url: str) -> None:
    enqueue(database_url, NewTask(task_type="shop.greet", params={"name": "x"}, queue="mail"))
    child = start("tasks", "list")
    child.expect("status.*queue.*failed")
    child.expect("shop.greet")
    child.expect(pexpect.EOF)


def test_each_task_takes_one_line_and_has_a_name_of_its_own(start: Start, database_url: str) -> None:
    enqueue(database_url, *(NewTask(task_type="shop.greet") for _ in range(9)))
    child = start("tasks", "list", COLUMNS="80", NO_COLOR="1")
    child.expect(pexpect.EOF)
    assert child.before is not None
    lines = [line.split() for line in child.before.splitlines() if "shop.greet" in line]
    assert len({line[0] for line in lines}) == 9
    assert all(line[2:5] == ["shop.greet", "default", "0/3"] and ":" in line[6] for line in lines)


def test_top_acts_on_the_chosen_line(start: Start, database_url: str) -> None:
    enqueue(
        database_url,
        NewTask(task_type="shop.broken", queue="alpha", max_attempts=1),
        NewTask(task_type="shop.broken", queue="beta", max_attempts=1),
    )
    drain(database_url)
    child = start("top", "--every", "0.2")
    child.expect("2 failed")
    child.send("p")
    child.expect("queue alpha paused")
    child.send("p")
    child.expect("queue alpha resumed")
    child.send("\x1b[B")
    child.send("r")
    child.expect("1 failed task of beta will run again")
    child.send("d")
    child.expect("select a worker to drain")
    child.send("q")
    child.expect(pexpect.EOF)
    child.wait()
    assert child.exitstatus == 0
    assert statuses(database_url) == {"alpha": "Failed", "beta": "Queued"}


def statuses(url: str) -> dict[str, str]:
    async def look() -> dict[str, str]:
        async with await Database.open(url) as db:
            rows = await db.fetch("SELECT queue, status FROM tasks")
            return {row["queue"]: row["status"] for row in rows}

    return asyncio.run(look())


def test_status_watch_shows_what_comes(start: Start, database_url: str) -> None:
    child = start("status", "--watch", "--every", "0.2")
    child.expect("0 queued")
    enqueue(database_url, NewTask(task_type="shop.greet"))
    child.expect("1 queued")
    child.sendintr()
    child.expect(pexpect.EOF)


def test_tail_follows(start: Start, database_url: str) -> None:
    child = start("tasks", "tail", "--every", "0.1", "--json")
    enqueue(database_url, NewTask(task_type="early"))  # may come before it looks, the next one does not
    while child.expect(['"task_type":"', pexpect.TIMEOUT], timeout=1):
        enqueue(database_url, NewTask(task_type="late"))
    child.sendintr()
    child.expect(pexpect.EOF)


def test_up_runs_everything_and_ctrl_c_drains(start: Start, database_url: str) -> None:
    child = start("up", "tests.cli.shop:app", "--workers", "1", "--port", "0")
    child.expect("database")
    child.expect(r"coordinator.*127\.0\.0\.1:\d+")
    child.expect("1 for all queues")
    child.expect(r"http://127\.0\.0\.1:\d+/login/\S+")
    link = child.after
    child.expect("ready")
    answer = start("submit", "shop.greet", "name=Terminal", "--wait", "--timeout", "60")
    answer.expect("Hello, Terminal")
    assert fetch(link.rsplit("/login", 1)[0] + "/api/openapi.json") == 200
    child.sendintr()
    child.expect("stopping.*Ctrl\\+C again")
    child.expect("stopped")
    child.expect(pexpect.EOF)
    child.wait()
    assert (child.exitstatus, child.signalstatus) == (0, None)


def fetch(url: str) -> int:
    import httpx

    return httpx.get(url).status_code


def test_up_ends_at_once_at_the_second_ctrl_c(start: Start, database_url: str) -> None:
    enqueue(database_url, NewTask(task_type="shop.sleepy"))
    child = start("up", "tests.cli.shop:app", "--workers", "1", "--port", "0")
    child.expect("ready")
    asyncio.run(running(database_url))
    child.sendintr()
    child.expect("stopping")
    child.sendintr()
    child.expect(pexpect.EOF, timeout=10)
    child.wait()
    assert child.exitstatus == 128 + signal.SIGINT


async def running(url: str) -> None:
    async with await Database.open(url) as db, asyncio.timeout(60):
        while not await db.fetch("SELECT FROM tasks WHERE status = 'In Progress'"):
            await asyncio.sleep(0.05)


def test_brackets_are_shown_and_not_read_as_markup(start: Start, database_url: str) -> None:
    [id] = enqueue(database_url, NewTask(task_type="resize[red]"))
    start("why", str(id)).expect_exact('a handler for "resize[red]"')
    code = """from shiftboss.cli.up import _say; _say("ai", "pip install 'shiftboss[ai]'")"""
    up = pexpect.spawn(sys.executable, ["-c", code], encoding="utf-8", timeout=60)
    up.expect_exact("pip install 'shiftboss[ai]'")


def test_a_port_that_the_system_chooses_is_shown(start: Start) -> None:
    start("admin", "--port", "0").expect(r"serving http://127\.0\.0\.1:[1-9]")
