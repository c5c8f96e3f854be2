from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from shiftboss import App, Context, Defer
from shiftboss.kit import Complete, Fail, Kit, Postpone, run
from shiftboss.model.errors import TaskFailed

app = App("kitchen")


@app.task(queue="slow", max_attempts=2, backoff=60)
async def flaky(ctx: Context, until: int) -> int:
    if ctx.attempt < until:
        raise RuntimeError("not yet")
    return ctx.attempt


@app.task()
async def spread(n: int) -> None:
    for left in range(n):
        await spread.enqueue(left)


@app.task()
async def put_off() -> None:
    raise Defer("closed", 3600)


@app.task(timeout=0.05)
async def endless() -> None:
    await asyncio.Event().wait()


@app.task(timeout=0.05, max_attempts=1)
async def deaf() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.fixture
async def kit(database_url: str) -> AsyncIterator[Kit]:
    async with Kit.open(app, database_url) as kit:
        yield kit


async def test_inline_is_as_strict_as_a_worker() -> None:
    assert await run(flaky.call(1)) == 1
    assert await run(flaky.call(2), attempt=2) == 2
    with pytest.raises(TaskFailed, match="not yet"):
        await run(flaky.call(2))
    with pytest.raises(TaskFailed, match="deferred by 3600 s: closed"):
        await run(put_off.call())
    with pytest.raises(TaskFailed, match="timed out"):
        await run(endless.call())


@pytest.mark.timeout(60)
async def test_a_handler_that_ignores_its_cancellation_does_not_hang_the_test(kit: Kit) -> None:
    with pytest.raises(TaskFailed, match="timed out, and its handler ignored the cancellation"):
        await run(deaf.call())
    await deaf.enqueue()
    [report] = await kit.drain()
    assert isinstance(report.outcome, Fail)


@pytest.mark.timeout(60)
async def test_a_handler_that_ignores_its_cancellation_does_not_hang_a_test_with_a_timeout(
    database_url: str,
) -> None:
    own, reached = App("own"), asyncio.Event()

    @own.task()
    async def endlessly_deaf() -> None:
        reached.set()
        await deaf()

    async with Kit.open(own, database_url) as kit:
        await endlessly_deaf.enqueue()
        drain = asyncio.create_task(kit.drain())
        await reached.wait()
        drain.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drain


async def test_drain_runs_what_is_due_and_what_that_enqueues(kit: Kit) -> None:
    await spread.enqueue(3)
    reports = await kit.drain()
    assert len(reports) == 8
    assert {type(report.outcome) for report in reports} == {Complete}
    assert await kit.drain() == []


async def test_the_clock_makes_retries_due(kit: Kit) -> None:
    began = await kit.freeze(datetime(2030, 1, 1, tzinfo=UTC))
    handle = await flaky.enqueue(2)
    [first] = await kit.drain("slow")
    assert isinstance(first.outcome, Fail)
    assert await kit.drain() == []
    assert began + timedelta(minutes=5) < await kit.move(minutes=5) < began + timedelta(minutes=6)
    [second] = await kit.drain()
    assert isinstance(second.outcome, Complete)
    row = await handle.look()
    assert (row["created_at"].year, row["status"]) == (2030, "Complete")
    await kit.thaw()
    assert (await (await flaky.enqueue(1)).look())["created_at"].year != 2030


async def test_deadlines_go_by_the_clock_of_the_database(kit: Kit) -> None:
    began = await kit.freeze(datetime(2020, 1, 1, tzinfo=UTC))
    terms = {"deadline": began + timedelta(hours=1)}
    await spread.options(**terms).enqueue(0)
    [in_time] = await kit.drain()
    assert isinstance(in_time.outcome, Complete), "this host says that it is years late"
    late = await spread.options(**terms).enqueue(0)
    await kit.move(hours=2)
    await kit.drain()
    row = await late.look()
    assert row["status"] == "Failed"
    assert "deadline" in row["error_message"]


async def test_a_queue_alone(kit: Kit) -> None:
    await put_off.enqueue()
    assert await kit.drain("slow") == []
    [report] = await kit.drain("default")
    assert isinstance(report.outcome, Postpone)


async def test_a_database_of_its_own() -> None:
    async with Kit.open(app) as kit:
        await spread.enqueue(1)
        assert len(await kit.drain()) == 2
    async with Kit.open(app) as kit:
        assert await kit.drain() == []
