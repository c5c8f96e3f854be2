"""Workers are notified only while one sleeps, and no task waits for the next poll."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.db.listen import MISSED, Notice
from shiftboss.model.task import NewTask
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.sleeper import LONGEST_PAUSE, MOST_PAUSES, SOON, Sleeper, TransactionSnapshot
from tests.worker.conftest import StartWorker

Eventually = Callable[..., Awaitable[Any]]
NEVER = 600.0


def handlers() -> Handlers:
    known = Handlers()

    @known.task("t")
    async def t() -> None: ...

    return known


async def enqueue(db: Database, count: int = 1) -> None:
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(count)])


async def asleep(db: Database) -> bool:
    row = await db.fetch_one("SELECT shiftboss.somebody_sleeps() AS yes")
    return bool(row and row["yes"])


async def open_tasks(db: Database) -> int:
    row = await db.fetch_one("SELECT count(*) AS n FROM tasks WHERE status <> 'Complete'")
    assert row is not None
    return int(row["n"])


async def heard(db: Database, act: Callable[[], Awaitable[Any]]) -> int:
    """How many notices of tasks the act sends."""
    async with db.dedicated() as conn:
        await conn.execute("LISTEN shiftboss_tasks")
        await act()
        await conn.execute("NOTIFY shiftboss_tasks, 'end'")
        notices = [notice.payload async for notice in conn.notifies(timeout=5, stop_after=1)]
        while notices[-1] != "end":
            notices += [notice.payload async for notice in conn.notifies(timeout=5, stop_after=1)]
        return len(notices) - 1


async def number(db: Database) -> int:
    row = await db.fetch_one("SELECT shiftboss.arm() AS n")
    assert row is not None
    return int(row["n"])


@pytest.mark.session  # it listens
async def test_nobody_is_notified_while_nobody_sleeps(db: Database) -> None:
    mine = await number(db)
    assert await heard(db, lambda: enqueue(db)) == 1
    await db.execute("SELECT shiftboss.hear(%s)", [mine])
    assert await heard(db, lambda: enqueue(db)) == 0
    other = await number(db)
    await db.execute("SELECT shiftboss.hear(%s)", [mine])
    assert await heard(db, lambda: enqueue(db)) == 1, "one that is late does not speak for the other"
    await db.execute("SELECT shiftboss.hear(%s)", [other])
    assert await heard(db, lambda: enqueue(db)) == 0


async def test_after_a_crash_somebody_may_sleep(db: Database) -> None:
    mine = await number(db)
    await db.execute("SELECT shiftboss.hear(%s)", [mine])
    await db.execute("ALTER SEQUENCE shiftboss.armed RESTART")  # as a crash of the server does
    await db.execute("ALTER SEQUENCE shiftboss.heard RESTART")
    assert await asleep(db)
    await number(db)
    await db.execute("SELECT shiftboss.hear(1000)")
    assert await asleep(db), "a number from before the crash says nothing"


async def test_a_setting_turns_notices_off(
    db: Database, start_worker: StartWorker, eventually: Eventually
) -> None:
    await number(db)
    await db.execute("INSERT INTO shiftboss.settings VALUES ('notify', 'off')")
    assert await heard(db, lambda: enqueue(db)) == 0
    async with start_worker(handlers(), poll_seconds=0.1):
        await eventually(lambda: no_open(db), timeout=20)


async def no_open(db: Database) -> bool:
    return await open_tasks(db) == 0


async def test_a_sleeping_worker_is_woken(
    db: Database, start_worker: StartWorker, eventually: Eventually
) -> None:
    async with start_worker(handlers(), poll_seconds=NEVER):
        for _ in range(5):
            await eventually(lambda: asleep(db), timeout=20)
            await enqueue(db)
            await eventually(lambda: no_open(db), timeout=20)


async def test_a_transaction_that_asked_before_the_worker_slept_is_waited_for(
    db: Database, start_worker: StartWorker, eventually: Eventually
) -> None:
    await db.execute("SELECT shiftboss.hear(%s)", [await number(db)])
    async with db.dedicated() as conn, db.dedicated() as other:
        async with conn.transaction(), other.transaction():
            await other.execute("SELECT pg_current_xact_id()")  # goes on for longer, and brings nothing
            await conn.execute("INSERT INTO tasks (task_type) VALUES ('t')")
            assert not await asleep(db), "it would have been notified"
            stack = start_worker(handlers(), poll_seconds=NEVER)
            await stack.__aenter__()
            await eventually(lambda: asleep(db), timeout=20)
        try:
            await eventually(lambda: no_open(db), timeout=20)
        finally:
            await stack.__aexit__(None, None, None)


async def test_no_task_is_forgotten_however_long_transactions_take(
    db: Database, start_worker: StartWorker, eventually: Eventually
) -> None:
    dice = random.Random(7)

    async def client() -> None:
        async with db.dedicated() as conn:
            for _ in range(25):
                async with conn.transaction(force_rollback=dice.random() < 0.1):
                    await conn.execute("INSERT INTO tasks (task_type) VALUES ('t')")
                    await asyncio.sleep(dice.choice((0, 0, 0.01, 0.15)))
                await asyncio.sleep(dice.choice((0, 0.005, 0.05)))

    first, second = (start_worker(handlers(), name, poll_seconds=NEVER) for name in ("w1", "w2"))
    async with first, second:
        await asyncio.gather(*(client() for _ in range(4)))
        await eventually(lambda: no_open(db), timeout=30)


async def test_one_of_many_says_that_a_notice_was_heard(db: Database, eventually: Eventually) -> None:
    first, last = Sleeper(db, lambda: None), Sleeper(db, lambda: None)
    for sleeper in (first, last):
        sleeper.found(False)
        await eventually(lambda one=sleeper: one._number is not None, timeout=20)
    newest = last._number
    assert newest is not None
    notice = Notice("shiftboss_tasks", str(newest))
    assert first.answer(notice) is None, "the other one is to say so"
    assert last.answer(notice._replace(channel="shiftboss_orders")) is None
    said = last.answer(notice)
    assert said is not None
    async with db.dedicated() as conn:
        await conn.execute(*said)
    assert not await asleep(db)
    assert last.answer(notice) is None, "once is enough"
    assert first.answer(notice) == said, "perhaps nobody did: this one does"
    await first.close()
    await last.close()


def test_of_a_snapshot_only_what_still_runs_is_left() -> None:
    before = TransactionSnapshot.parse("10:20:12,15")
    assert TransactionSnapshot.parse("12:30:12,25").still(before).running == {12}
    assert TransactionSnapshot.parse("21:30:25").still(before).running == set()
    assert TransactionSnapshot.parse("20:20:").running == set()


@pytest.mark.session  # it listens
async def test_a_worker_of_another_queue_acknowledges_what_it_hears(
    db: Database, start_worker: StartWorker, eventually: Eventually
) -> None:
    """Until it does, every enqueue would notify."""
    other = Handlers()

    @other.task("other")
    async def unused() -> None: ...

    async with start_worker(other, poll_seconds=NEVER):
        await eventually(lambda: asleep(db), timeout=20)
        before = await last_heard(db)
        await enqueue(db)

        async def acknowledged() -> bool:
            return await last_heard(db) > before

        await eventually(acknowledged, timeout=20)


@pytest.mark.session  # it listens
async def test_a_worker_that_stops_leaves_nobody_to_notify(
    db: Database, start_worker: StartWorker, eventually: Eventually
) -> None:
    async with start_worker(handlers(), poll_seconds=NEVER):
        async with start_worker(handlers(), "w2", poll_seconds=NEVER) as second:
            sleeper = second._source._sleeper  # type: ignore[attr-defined]
            newest = "SELECT pg_sequence_last_value('shiftboss.armed')"

            async def last() -> bool:
                if sleeper._number is not None and await db.value(int, newest) == sleeper._number:
                    return True
                await db.execute("SELECT shiftboss.ring()")  # both fall asleep again, in any order
                return False

            await eventually(last, timeout=20)
        await eventually(lambda: asleep(db), timeout=20)  # the first one sleeps again
        await enqueue(db)
        await eventually(lambda: no_open(db), timeout=20)
    assert not await asleep(db)


async def test_only_notices_in_quick_succession_make_a_sleeper_pause(
    db: Database, eventually: Eventually
) -> None:
    """Otherwise each task would make all idle workers of a large fleet look many times."""
    looks: list[None] = []
    sleeper = Sleeper(db, lambda: looks.append(None))

    async def sleep(since: float) -> None:
        sleeper.found(False)
        await eventually(lambda: sleeper._number is not None, timeout=20)
        sleeper._asleep_since -= since

    for notice, since, pauses in [
        (MISSED, 0.0, 0),
        (Notice("shiftboss_tasks", "1"), 2 * SOON, 0),
        (Notice("shiftboss_tasks", "1"), -NEVER, 1),
    ]:
        await sleep(since)
        sleeper.notice(notice)
        assert len(sleeper._pauses) == pauses
        await eventually(lambda: not sleeper._sleeping, timeout=20)
        sleeper._number = None
    sleeper._pauses = [LONGEST_PAUSE] * MOST_PAUSES
    sleeper.found(False)
    await eventually(lambda: sleeper._pausing, timeout=20)
    before = len(looks)
    sleeper.notice(Notice("shiftboss_tasks", "1"))
    assert (len(looks), len(sleeper._pauses)) == (before, MOST_PAUSES - 1), "it looks soon anyway"
    await sleeper.close()


@pytest.mark.parametrize("payload", ["", "x", "٣", "-1", "9" * 5000])
def test_a_notification_from_anybody_is_harmless(payload: str, db: Database) -> None:
    sleeper = Sleeper(db, lambda: None)
    sleeper._number = 1
    assert sleeper.answer(Notice("shiftboss_tasks", payload)) is None


async def last_heard(db: Database) -> int:
    return await db.value(int, "SELECT coalesce(pg_sequence_last_value('shiftboss.heard'), 0)")
