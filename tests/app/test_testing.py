"""The kit's assertions, its schedules, its blocking form, and the pytest plugin in a separate project."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shiftboss import App
from shiftboss.kit import Kit

app = App("tests")


@app.task(queue="mail")
async def remind(name: str) -> None: ...


@app.task()
async def other() -> None: ...


@app.cron("0 * * * *")
async def hourly() -> None:
    await remind.enqueue("everybody")


@app.cron("30 9 * * *", timezone="Europe/Madrid")
async def daily() -> None: ...


@pytest.fixture
async def kit(database_url: str) -> AsyncIterator[Kit]:
    async with Kit.open(app, database_url) as kit:
        yield kit


async def test_what_was_enqueued(kit: Kit) -> None:
    await kit.assert_not_enqueued(remind)
    await remind.enqueue("Ann")
    await remind.options(priority=10).enqueue("Bob")
    await kit.drain()
    await kit.assert_enqueued(remind)
    await kit.assert_enqueued("tests.remind", times=2, queue="mail")
    await kit.assert_enqueued(remind.call("Bob"), times=1, priority=10)
    await kit.assert_not_enqueued(remind.call("Cleo"))
    await kit.assert_not_enqueued(other)
    assert [row["params"]["name"] for row in await kit.enqueued(remind)] == ["Ann", "Bob"]
    assert len(await kit.enqueued()) == 2


async def test_a_failed_assertion_shows_what_there_is(kit: Kit) -> None:
    await remind.enqueue("Ann")
    with pytest.raises(AssertionError, match=r"'Bob'.*at least once, but was enqueued 0 times") as caught:
        await kit.assert_enqueued(remind.call("Bob"))
    assert "params={'name': 'Ann'} status='Queued'" in str(caught.value)
    with pytest.raises(AssertionError, match=r"queue='sms'.*0 times"):
        await kit.assert_enqueued(remind, queue="sms")
    with pytest.raises(AssertionError, match=r"0 times, but was enqueued 1 times"):
        await kit.assert_not_enqueued(remind)


async def test_schedules_fire_as_the_clock_is_moved(kit: Kit) -> None:
    began = await kit.freeze(datetime(2030, 6, 1, 5, 30, tzinfo=UTC))
    await kit.move(minutes=29)
    await kit.assert_not_enqueued(hourly)
    await kit.move(hours=3)
    rows = await kit.enqueued(hourly)
    ticks = [row["created_at"].replace(microsecond=0) for row in rows]
    assert ticks == [began + timedelta(minutes=30, hours=n) for n in range(3)]
    [madrid] = await kit.enqueued(daily)
    assert madrid["created_at"].replace(microsecond=0) == datetime(2030, 6, 1, 7, 30, tzinfo=UTC)
    await kit.drain()
    await kit.assert_enqueued(remind.call("everybody"), times=3)


async def test_a_clock_that_is_set_makes_up_for_nothing(kit: Kit) -> None:
    for year in (2040, 2020):
        await kit.freeze(datetime(year, 1, 1, tzinfo=UTC))
        await kit.assert_not_enqueued(hourly)
    await kit.move(hours=1, minutes=1)
    await kit.assert_enqueued(hourly, times=1)


def test_without_an_event_loop(database_url: str) -> None:
    own = App("plain")

    @own.task()
    def double(n: int) -> int:
        return 2 * n

    for n in (2, 3):
        with Kit.sync(own, database_url) as kit:
            handle = own.sync.enqueue(double.options(delay=60).call(n))
            assert kit.drain() == []
            kit.move(minutes=2)
            assert len(kit.drain()) == 1
            assert handle.result(timeout=30) == 2 * n
            kit.assert_enqueued(double.call(n), times=1)


PROJECT = {
    "tasks.py": """
from shiftboss import App
app = App("shop")

@app.task()
async def greet(name: str) -> str:
    return f"Hello, {name}"
""",
    "test_tasks.py": """
from tasks import app, greet

async def test_async(shiftboss_kit):
    handle = await greet.enqueue("World")
    await shiftboss_kit.drain()
    assert await handle.result(timeout=30) == "Hello, World"
    await shiftboss_kit.assert_enqueued(greet.call("World"), times=1)

async def test_a_database_of_its_own(shiftboss_kit):
    await shiftboss_kit.assert_not_enqueued(greet)

def test_plain(shiftboss_sync_kit):
    app.sync.enqueue(greet.call("World"))
    assert len(shiftboss_sync_kit.drain()) == 1
""",
    "pytest.ini": "[pytest]\nshiftboss_app = tasks:app\nasyncio_mode = auto\npythonpath = .\n",
}


def test_the_plugin_in_a_project_of_its_own(tmp_path: Path) -> None:
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\npythonpath = .\n")
    done = subprocess.run(
        [*command, "-k", "plain"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "no app is configured for shiftboss_kit" in done.stdout
