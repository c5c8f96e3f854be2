"""Sleeps, events and child tasks: a waiting task occupies no worker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pydantic import BaseModel

from shiftboss import Context, SyncContext
from shiftboss.app import App
from shiftboss.db import Database
from shiftboss.kit import Complete, Fail, Kit, Suspended
from shiftboss.model.errors import TaskCancelled, TaskFailed, WaitTimeout


class Verdict(BaseModel):
    ok: bool
    by: str = "nobody"


@pytest.fixture
def app() -> App:
    return App("waits")


@pytest.fixture
async def kit(app: App, database_url: str) -> AsyncIterator[Kit]:
    async with Kit.open(app, database_url) as kit:
        yield kit


def kinds(reports: list[Any]) -> list[str]:
    return [type(report.outcome).__name__ for report in reports]


async def test_a_sleep_gives_the_worker_back_and_spends_no_attempt(app: App, kit: Kit) -> None:
    ran: Counter[str] = Counter()

    @app.task(timeout=3600)
    async def rest(ctx: Context) -> int:
        await ctx.step("before", lambda: ran.update(["before"]))
        await ctx.sleep("rest", timedelta(days=1))
        await ctx.sleep("rest", timedelta(days=1))
        return ctx.attempt

    await kit.freeze()
    handle = await rest.enqueue()
    assert kinds(await kit.drain()) == ["Suspended"]
    row = await handle.look()
    assert (row["status"], row["hold"], row["attempts"], row["worker_id"]) == ("Queued", "sleep", 0, None)
    (reason,) = await handle.why()
    assert reason.reason == "sleeping"
    assert reason.detail.startswith("rest: until ")
    await kit.move(hours=23)
    assert await kit.drain() == []
    await kit.move(hours=2)
    assert kinds(await kit.drain()) == ["Suspended"]
    await kit.move(days=1)
    (last,) = await kit.drain()
    assert (last.outcome, ran) == (Complete(b"1"), {"before": 1})
    outcomes = [attempt["outcome"] for attempt in await kit.db.tasks.attempts(handle.id)]
    assert outcomes == ["suspended", "suspended", "complete"]


async def test_an_event_wakes_every_waiter_once(app: App, kit: Kit) -> None:
    @app.task()
    async def approve(ctx: Context) -> str:
        verdict = await ctx.wait_for("approval", Verdict)
        assert isinstance(verdict, Verdict)
        return verdict.by

    handles = [await approve.enqueue() for _ in range(3)]
    assert kinds(await kit.drain()) == ["Suspended"] * 3
    (reason,) = await handles[0].why()
    assert reason.reason == "waits for an event"
    assert reason.advice == f"shiftboss events send approval --task {handles[0].id}"
    assert await app.send_event("approval", {"ok": True, "by": "Ann"}, task=handles[0].id) == 1
    assert await app.send_event("approval", Verdict(ok=True, by="Bob")) == 2
    assert await app.send_event("approval", {"ok": False, "by": "late"}) == 0
    await kit.drain()
    assert [await handle.result(5) for handle in handles] == ["Ann", "Bob", "Bob"]


async def test_events_sent_before_the_wait_are_found_in_order_and_once(app: App, kit: Kit) -> None:
    @app.task()
    async def listen(ctx: Context) -> list[Any]:
        return [await ctx.wait_for("line") for _ in range(3)]

    once = uuid4()
    await app.send_event("line", 1, id=once)
    await app.send_event("line", 1, id=once)
    await app.send_event("line", 2)
    handle = await listen.enqueue()
    await kit.drain()
    assert (await handle.look())["hold"] == "event"  # the third has not come
    await app.send_event("line", 3)
    await kit.drain()
    assert await handle.result(5) == [1, 2, 3]


async def test_events_are_kept_as_long_as_was_said(app: App, kit: Kit) -> None:
    @app.task()
    async def late(ctx: Context, key: str) -> Any:
        try:
            return await ctx.wait_for(key, timeout=60)
        except WaitTimeout as error:
            return str(error)

    await kit.freeze()
    await kit.db.steps.set_event_retention(timedelta(minutes=5))
    await app.send_event("short", 1)
    await app.send_event("long", 2, keep=timedelta(hours=2))
    await kit.move(hours=1)
    short, long = await late.enqueue("short"), await late.enqueue("long")
    await kit.drain()
    await kit.move(minutes=2)
    await kit.drain()
    await app.send_event("short", 3)  # too late for a wait that has ended
    assert await short.result(5) == "the event 'short' did not arrive in time"
    assert await long.result(5) == 2
    await kit.move(days=2)
    await kit.db.tasks.tidy(timedelta(days=1))
    assert await kit.db.fetch("SELECT * FROM shiftboss.sent_events") == []


async def test_sender_and_waiter_that_cannot_see_each_other_meet_in_the_sweep(app: App, kit: Kit) -> None:
    @app.task()
    async def wait(ctx: Context) -> Any:
        return await ctx.wait_for("crossing")

    handle = await wait.enqueue()
    async with await psycopg.AsyncConnection.connect(kit.db.url) as conn:
        await conn.execute("SELECT shiftboss.send_event('crossing', '7')")  # open: the waiter cannot see it
        assert kinds(await kit.drain()) == ["Suspended"]
    assert (await handle.look())["hold"] == "event"
    await kit.drain()  # sweeps as the leader does
    assert await handle.result(5) == 7


async def test_an_event_of_a_transaction_that_rolls_back_was_never_sent(app: App, kit: Kit) -> None:
    @app.task()
    async def wait(ctx: Context) -> Any:
        return await ctx.wait_for("undone")

    handle = await wait.enqueue()
    await kit.drain()
    async with await psycopg.AsyncConnection.connect(kit.db.url) as conn:
        assert await app.send_event("undone", 1, conn=conn) == 1
        await conn.rollback()
    assert await kit.drain() == []
    assert (await handle.look())["hold"] == "event"


async def test_a_child_task_is_made_once_and_gives_its_result(app: App, kit: Kit) -> None:
    made: Counter[str] = Counter()

    @app.task()
    async def square(n: int) -> int:
        made["square"] += 1
        return n * n

    @app.task()
    async def parent(ctx: Context) -> list[int]:
        first = await ctx.run(square.call(3))
        return [first, *await ctx.gather(square.call(4), ctx.run(square.call(5)), ctx.step("s", lambda: 6))]

    @app.task()
    def plain_parent(ctx: SyncContext) -> list[int]:
        return [ctx.run(square.call(3)), *ctx.gather(square.call(4), square.call(5))]

    handle, plain = await parent.enqueue(), await plain_parent.enqueue()
    await kit.drain()
    assert await handle.result(5) == [9, 16, 25, 6]
    assert await plain.result(5) == [9, 16, 25]
    assert made == {"square": 6}


async def test_children_that_fail_or_are_cancelled_raise_in_the_parent(app: App, kit: Kit) -> None:
    @app.task(max_attempts=1)
    async def broken() -> None:
        raise ValueError("no good")

    @app.task(queue="never")
    async def never() -> None: ...

    @app.task()
    async def parent(ctx: Context) -> list[str]:
        told = []
        try:
            await ctx.run(broken.call())
        except TaskFailed as error:
            told.append(str(error.error).partition("\n")[0])
        try:
            await ctx.run(never.call())
        except TaskCancelled as error:
            told.append(str(error.reason))
        return told

    handle = await parent.enqueue()
    await kit.drain("default")
    (reason,) = await handle.why()
    assert reason.reason == "waits for a task"
    (child,) = [step["child_id"] for step in await kit.db.steps.of(handle.id) if step["state"] == "waiting"]
    assert reason.advice == f"shiftboss why {child}"
    await kit.db.tasks.cancel([child], "not needed")
    await kit.drain("default")
    assert await handle.result(5) == ["ValueError: no good", "not needed"]


async def test_cancel_and_deadline_end_a_wait(app: App, kit: Kit) -> None:
    @app.task()
    async def wait(ctx: Context) -> None:
        await ctx.gather(ctx.wait_for("nothing"), ctx.sleep("long", timedelta(days=9)))

    now = await kit.freeze()
    one, other = await wait.enqueue(), await wait.options(deadline=now + timedelta(hours=1)).enqueue()
    await kit.drain()
    assert len(await one.why()) == 2
    assert (await one.cancel("enough")).status == "Cancelled"
    await kit.move(hours=2)
    await kit.db.fetch("SELECT shiftboss.expire()")
    assert (await other.look())["status"] == "Failed"
    await app.send_event("nothing", 1)
    await kit.move(days=20)
    assert await kit.drain() == []
    assert (await one.look())["status"] == "Cancelled"


async def test_timeout_counts_the_time_before_a_wait(app: App, kit: Kit) -> None:
    @app.task(timeout=60, max_attempts=1)
    async def busy(ctx: Context) -> None:
        await ctx.sleep("nap", 1)
        await asyncio.sleep(120)

    handle = await busy.enqueue()
    await kit.drain()
    # it ran for 59.9 s before the nap
    await kit.db.execute(
        "UPDATE shiftboss.past_attempts SET started_at = ended_at - interval '59.9 s' WHERE outcome = 'suspended'"
    )
    await kit.move(seconds=5)
    (report,) = await kit.drain()
    assert isinstance(report.outcome, Fail)
    assert report.outcome.kind == "timeout"
    assert (await handle.look())["status"] == "Failed"


async def test_resuming_spends_no_rate_token(app: App, kit: Kit) -> None:
    @app.task()
    async def nap(ctx: Context) -> str:
        await ctx.sleep("nap", 1)
        return "awake"

    await kit.freeze()
    await kit.db.tasks.set_limit("task_type", "waits.nap", rate=2, rate_period=timedelta(hours=1))
    handles = [await nap.enqueue() for _ in range(3)]
    assert kinds(await kit.drain()) == ["Suspended"] * 2
    await kit.move(seconds=5)
    done = await kit.drain()
    assert sorted(kinds(done)) == ["Complete", "Complete"]
    await kit.move(hours=1)
    await kit.drain()
    await kit.move(seconds=5)
    await kit.drain()
    assert [await handle.result(5) for handle in handles] == ["awake"] * 3


async def test_a_task_that_waits_with_a_task_group(app: App, kit: Kit) -> None:
    @app.task()
    async def grouped(ctx: Context) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.sleep("a", 1))
        return 1

    handle = await grouped.enqueue()
    (report,) = await kit.drain()
    assert isinstance(report.outcome, Suspended)
    await kit.move(seconds=5)
    await kit.drain()
    assert await handle.result(5) == 1


async def test_two_children_that_end_at_once_wake_their_parent(app: App, kit: Kit, db: Database) -> None:
    @app.task()
    async def child(n: int) -> int:
        return n

    @app.task(queue="parents")
    async def parent(ctx: Context) -> list[int]:
        return await ctx.gather(child.call(1), child.call(2))

    handle = await parent.enqueue()
    await kit.drain("parents")
    claimed = await kit.db.tasks.claim("someone", 2)
    assert len(claimed) == 2
    async with (
        await psycopg.AsyncConnection.connect(kit.db.url) as one,
        await psycopg.AsyncConnection.connect(kit.db.url) as two,
    ):
        for conn in (one, two):  # above this level one of them gets a serialization error
            await conn.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        done = "SELECT shiftboss.complete(ARRAY[%s::uuid], ARRAY[%s::bigint], ARRAY['1'::jsonb])"
        await one.execute(done, [claimed[0].id, claimed[0].lease])
        second = asyncio.create_task(two.execute(done, [claimed[1].id, claimed[1].lease]))
        await asyncio.sleep(0.2)  # it waits for the parent's row, or does not; both are fine
        await one.commit()
        await second
        await two.commit()
    assert (await handle.look())["hold"] is None


async def test_inline_calls_run_steps_and_skip_sleeps(app: App) -> None:
    @app.task()
    async def child(n: int) -> int:
        return n + 1

    @app.task()
    async def parent(ctx: Context, n: int) -> int:
        doubled = await ctx.step("double", lambda: n * 2)
        await ctx.sleep("a year", timedelta(days=365))
        return await ctx.run(child.call(doubled))

    @app.task()
    def plain(ctx: SyncContext, n: int) -> int:
        return int(ctx.run(child.call(ctx.step("double", lambda: n * 2))))

    assert await parent(20) == 41
    assert await asyncio.to_thread(plain, 20) == 41
