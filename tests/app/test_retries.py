"""Retry rules in code: which errors, how often, after what delay, and the exceptions that override them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from shiftboss import App, GiveUp, Retry
from shiftboss.kit import Fail, Kit
from shiftboss.model.errors import UsageError
from tests.app import retry_tasks

app = App("rules")
app.include(retry_tasks.app)


class Throttled(Exception):
    pass


@app.task(retry_on=(ConnectionError, TimeoutError), give_up_on=ConnectionRefusedError, max_attempts=5)
async def picky(name: str) -> None:
    raise {"reset": ConnectionResetError, "refused": ConnectionRefusedError, "value": ValueError}[name]("no")


@app.task(retry_on=ConnectionError, timeout=0.05)
async def slow() -> None:
    await asyncio.Event().wait()


@app.task(retry_on=TimeoutError, timeout=0.05, backoff=lambda attempt, error: timedelta(minutes=7))
async def slow_but_worth_it() -> None:
    await asyncio.Event().wait()


@app.task(max_attempts=2, backoff=30)
async def asks(after: float | None) -> None:
    raise Retry("not ready", after=after)


@app.task(max_attempts=9)
def stops() -> None:
    raise GiveUp("the account is closed")


@app.task(backoff=lambda attempt, error: 100 * attempt if isinstance(error, Throttled) else None)
async def paced(throttled: bool) -> None:
    raise Throttled if throttled else ValueError


@app.task(backoff=lambda attempt, error: 1 / 0, max_attempts=2)  # type: ignore[arg-type, return-value]
async def badly_paced() -> None:
    raise ValueError


@pytest.fixture
async def kit(database_url: str) -> AsyncIterator[Kit]:
    async with Kit.open(app, database_url) as kit:
        await kit.freeze()
        yield kit


async def once(kit: Kit, call: Any) -> tuple[str, float]:
    """Status and pause after the next attempt."""
    handle = await app.enqueue(call)
    [report] = await kit.drain(limit=1)
    assert isinstance(report.outcome, Fail)
    row = await handle.look()
    pause = (row["run_at"] - row["updated_at"]).total_seconds() if row["run_at"] else 0.0
    return row["status"], round(pause)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (picky.call("reset"), ("Queued", 0)),
        (picky.call("refused"), ("Failed", 0)),
        (picky.call("value"), ("Failed", 0)),
        (slow.call(), ("Failed", 0)),
        (slow_but_worth_it.call(), ("Queued", 420)),
        (asks.call(90), ("Queued", 90)),
        (asks.call(0), ("Queued", 0)),
        (stops.call(), ("Failed", 0)),
        (paced.call(True), ("Queued", 100)),
        (paced.call(False), ("Queued", 0)),
        (badly_paced.call(), ("Queued", 0)),
        (retry_tasks.in_child.call("key"), ("Failed", 0)),
        (retry_tasks.in_child.call("value"), ("Queued", 60)),
        (retry_tasks.asks_from_child.call(), ("Queued", 90)),
    ],
    ids=range(14),
)
async def test_what_becomes_of_an_attempt(kit: Kit, call: Any, expected: tuple[str, float]) -> None:
    assert await once(kit, call) == expected


async def test_a_retry_without_a_time_takes_the_backoff_and_spends_an_attempt(kit: Kit) -> None:
    status, pause = await once(kit, asks.call(None))
    assert status == "Queued"
    assert 20 <= pause <= 40
    await kit.move(minutes=1)
    [report] = await kit.drain()
    row = await kit.db.tasks.get(report.task.id)
    assert row is not None
    assert (row["status"], row["attempts"]) == ("Failed", 2)
    assert "not ready" in row["error_message"]


async def test_the_pause_grows_as_the_function_says(kit: Kit) -> None:
    handle = await paced.enqueue(True)
    for expected in (100, 200):
        await kit.drain()
        row = await handle.look()
        assert round((row["run_at"] - row["updated_at"]).total_seconds()) == expected
        await kit.move(seconds=expected + 1)


@pytest.mark.parametrize(
    ("option", "right"),
    [("max_retries", "max_attempts"), ("retries", "max_attempts"), ("autoretry_for", "retry_on"),
     ("timeouts", "timeout"), ("zzz", "options are")],
)  # fmt: skip
def test_a_wrong_option_names_the_right_one(option: str, right: str) -> None:
    wrong: dict[str, Any] = {option: 3}
    with pytest.raises(UsageError, match=f"task shop.work has no option '{option}': .*{right}"):

        @App("shop").task(**wrong)
        def work() -> None: ...


def test_what_is_no_exception_is_refused() -> None:
    with pytest.raises(UsageError, match="retry_on: 'ValueError' is not an exception class"):
        App("shop").task(retry_on="ValueError")(print)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf")])
def test_a_retry_after_no_sensible_time_is_refused(after: float) -> None:
    with pytest.raises(UsageError, match="cannot be retried after"):
        Retry(after=after)
