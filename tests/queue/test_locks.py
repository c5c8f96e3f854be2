"""Locks: conflicting callers get an answer, a locked row delays only its own report, and nothing deadlocks by itself."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.connection import connect
from shiftboss.model.errors import DatabaseError, TasksLocked
from shiftboss.model.task import Complete, NewTask, Report
from shiftboss.worker.outbox import Outbox
from shiftboss.worker.source import DatabaseSource
from tests.conftest import as_superuser
from tests.queue.test_queue import enqueue, status
from tests.queue.test_sessions import _has, array, claimed, in_a_session

Eventually = Callable[..., Awaitable[Any]]


def child_of(*parents: UUID) -> str:
    names = ", ".join(f'"{parent}"' for parent in parents)
    return f"""SELECT * FROM shiftboss.enqueue('[{{"task_type": "t", "depends_on": [{names}]}}]')"""


def keyed(key: str) -> str:
    return f"""SELECT * FROM shiftboss.enqueue('[{{"task_type": "t", "dedup_key": "{key}"}}]')"""


@pytest.mark.parametrize("kind", ["dependencies", "dedup keys", "cancel"])
async def test_callers_that_cross_get_success_or_a_deadlock(
    db: Database, eventually: Eventually, kind: str
) -> None:
    a, b = await enqueue(db), await enqueue(db)
    calls = {
        "dependencies": [child_of(a), child_of(b)],
        "dedup keys": [keyed("a"), keyed("b")],
        "cancel": [f"SELECT shiftboss.cancel({array(a)})", f"SELECT shiftboss.cancel({array(b)})"],
    }[kind]
    async with db.dedicated() as one, db.dedicated() as two:
        for conn, call in ((one, calls[0]), (two, calls[1])):
            await conn.execute("BEGIN")
            await conn.execute(call)
        first = asyncio.create_task(_tried(one, calls[1]))
        await eventually(lambda: _has(db, 1))
        came_of_it = await asyncio.wait_for(asyncio.gather(first, _tried(two, calls[0])), 10)
    assert sorted(came_of_it) == ["40P01", "done"]


async def _tried(conn: Any, call: str) -> str:
    try:
        await conn.execute(call)
    except psycopg.errors.DeadlockDetected as error:
        await conn.execute("ROLLBACK")
        return str(error.sqlstate)
    await conn.execute("COMMIT")
    return "done"


async def test_own_transactions_are_tried_again_after_a_deadlock(
    db: Database, eventually: Eventually
) -> None:
    a, b = sorted([await enqueue(db), await enqueue(db)])
    async with connect(as_superuser(db.url)) as other:
        await other.execute("SET deadlock_timeout = '1min'")  # so that the victim is ours
        await other.execute("BEGIN")
        await other.execute(
            "SELECT FROM tasks WHERE id = ANY (%s) ORDER BY created_at DESC LIMIT 1 FOR UPDATE", [[a, b]]
        )
        cancel = asyncio.create_task(db.tasks.cancel([a, b]))
        await eventually(lambda: _has(db, 1))
        await other.execute(
            "SELECT FROM tasks WHERE id = ANY (%s) ORDER BY created_at LIMIT 1 FOR UPDATE", [[a, b]]
        )
        await other.execute("COMMIT")
    assert [row.status for row in await cancel] == ["Cancelled"] * 2


async def test_a_thousand_linked_tasks_use_no_subtransaction(db: Database) -> None:
    async with db.dedicated() as conn:
        if conn.info.server_version < 160000:
            return
        await conn.execute("BEGIN")
        last = uuid4()
        await conn.execute("INSERT INTO tasks (id, task_type) VALUES (%s, 't')", [last])
        for _ in range(1000):
            row = await (await conn.execute(child_of(last))).fetchone()
            assert row is not None
            last = row["id"]
        counted = await conn.execute(
            "SELECT s.subxact_count, s.subxact_overflowed FROM pg_stat_get_backend_idset() id,"
            " pg_stat_get_backend_subxact(id) s WHERE pg_stat_get_backend_pid(id) = pg_backend_pid()"
        )
        assert await counted.fetchone() == {"subxact_count": 0, "subxact_overflowed": False}


async def test_no_function_of_the_queue_opens_a_subtransaction(db: Database) -> None:
    rows = await db.fetch(
        r"SELECT p.proname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'"
        r" WHERE p.pronamespace = 'shiftboss'::regnamespace AND p.prosrc ~ '\mEXCEPTION\s+WHEN\M'"
        r" AND p.proname = ANY (%s)",
        [["enqueue", "enqueue_in_turn", "await_parents", "prepare_task", "cancel", "retry", "run_now", "reserve_keys", "complete",
          "fail", "defer", "cancelled", "settle", "watch", "claim", "leave", "register", "rescue"]],
    )  # fmt: skip
    assert rows == []
    assert await db.fetch("SELECT FROM pg_proc WHERE 'shiftboss.giving_way=on' = ANY (proconfig)") == []


LOCKS = {
    "the task": "SELECT FROM tasks WHERE id = %(task)s FOR UPDATE",
    "its child": "SELECT FROM tasks WHERE %(task)s = ANY (depends_on) FOR UPDATE",
    "a new child": "INSERT INTO tasks (task_type, depends_on) VALUES ('t', ARRAY[%(task)s]::uuid[])",
    "its limit": "SELECT FROM shiftboss.limits WHERE name = 'limited' FOR UPDATE",
}


@pytest.mark.serial
@pytest.mark.parametrize("what", LOCKS)
async def test_a_locked_row_delays_only_its_own_report(
    db: Database, eventually: Eventually, what: str
) -> None:
    await db.tasks.set_limit("task_type", "limited", max_per_key=5)
    await db.tasks.enqueue([NewTask(task_type="t") for _ in range(19)])
    task = await enqueue(db, task_type="limited", concurrency_key="k")
    await db.tasks.enqueue([NewTask(task_type="later", queue="later", depends_on=[task])])
    await db.execute("SELECT shiftboss.register('w', p_queues => '{default}')")
    claimed = await db.tasks.claim("w", 100)
    assert len(claimed) == 20
    source = DatabaseSource(db, listening=False)
    outbox = Outbox(source)
    await outbox.start()
    async with db.dedicated() as other:
        await other.execute("BEGIN")
        await other.execute(LOCKS[what], {"task": task})
        began = time.monotonic()
        for one in claimed:
            outbox.put(Report(one, Complete(None), 0.1))
        await eventually(lambda: _done(db, 19), timeout=5)
        assert time.monotonic() - began < 5
        assert (await status(db, task)) == ["In Progress"]
        assert outbox.leases() == [one.lease for one in claimed if one.id == task]
        await other.execute("COMMIT")
    await eventually(lambda: _done(db, 20))
    await eventually(lambda: len(outbox) == 0)
    await outbox.stop()


async def _done(db: Database, count: int) -> bool:
    row = await db.fetch_one("SELECT count(*) AS n FROM tasks WHERE status = 'Complete'")
    return row == {"n": count}


async def test_a_report_names_the_locked_tasks(db: Database) -> None:
    a, b = await enqueue(db), await enqueue(db)
    held = [(one.id, one.lease) for one in await db.tasks.claim("w", 2)]
    async with db.transaction() as other:
        await other.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [a])
        with pytest.raises(TasksLocked) as refused:
            await db.tasks.complete(held, [b"1", b"2"])
        assert refused.value.ids == {a}
        assert await status(db, a, b) == ["In Progress", "Complete"]
    assert await db.tasks.complete(held, [b"1", b"2"]) == []


async def test_progress_and_beats_do_not_wait_for_a_locked_task(db: Database) -> None:
    a, b = await enqueue(db), await enqueue(db)
    held = [(one.id, one.lease) for one in await db.tasks.claim("w", 2)]
    await db.execute("UPDATE tasks SET generation_started_at = now() - interval '1 minute'")
    async with db.transaction() as other:
        await other.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [a])
        assert await asyncio.wait_for(db.tasks.progress(held, [5, 6], [None, None]), 5) == []
        await asyncio.wait_for(db.workers.beat("w", []), 5)
        assert await status(db, a, b) == ["In Progress", "Queued"]


async def test_nothing_deadlocks_under_watches_reports_and_cancels(db: Database) -> None:
    """Dense rounds on the same rows: only callers that lock in two statements of their own may ever deadlock."""
    for _ in range(6):
        made = [task.id for task in await db.tasks.enqueue([NewTask(task_type="t") for _ in range(40)])]
        held = [(one.id, one.lease) for one in await db.tasks.claim("w", 20)]
        calls: list[Callable[[], Awaitable[Any]]] = []
        for _ in range(4):
            some, part = random.sample(made, 30), random.sample(held, 5)
            calls += [
                lambda some=some: db.tasks.watch(some),
                lambda some=some: db.tasks.cancel(some),
                lambda part=part: db.tasks.extend(part, timedelta(minutes=1)),
                lambda part=part: db.tasks.complete(part, [None] * len(part)),
            ]
        random.shuffle(calls)
        await asyncio.gather(*(_past_locks(call) for call in calls))
    assert await _deadlocks(db) == 0


async def _past_locks(call: Callable[[], Awaitable[Any]]) -> None:
    with suppress(TasksLocked):
        await call()


async def _deadlocks(db: Database) -> int:
    async with db.dedicated() as conn:
        await conn.execute("SELECT pg_stat_force_next_flush()")
        cursor = await conn.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        row = await cursor.fetchone()
        return int(row["deadlocks"]) if row else 0


async def test_workers_of_one_name_come_and_go_without_a_deadlock(db: Database) -> None:
    async def come_and_go(number: int) -> None:
        for _ in range(5):
            with suppress(DatabaseError):  # refused: another process registered the name at the same time
                await db.execute("SELECT shiftboss.register('w', p_incarnation => %s)", [uuid4()])
            await db.tasks.claim("w", 3)
            if number % 2:
                await db.workers.leave("w")
            else:
                await db.workers.lose_worker(["w"], "lost", "gone")

    await db.tasks.enqueue([NewTask(task_type="t", max_attempts=1000) for _ in range(20)])
    await asyncio.gather(*(come_and_go(number) for number in range(6)))
    assert await _deadlocks(db) == 0


async def test_a_leave_of_a_former_process_changes_nothing(db: Database) -> None:
    new = uuid4()
    await db.execute("SELECT shiftboss.register('w', p_incarnation => %s)", [new])
    id = await enqueue(db)
    await db.tasks.claim("w", 1, incarnation=new)
    assert await db.workers.leave("w", incarnation=uuid4()) == 0
    worker = await db.workers.get("w")
    assert worker is not None
    assert (worker["status"], worker["lease_expires_at"] is None) == ("active", False)
    assert await status(db, id) == ["In Progress"]
    assert await db.workers.leave("w", incarnation=new) == 1


@asynccontextmanager
async def holding(db: Database, id: UUID) -> AsyncIterator[Callable[[UUID], Awaitable[Any]]]:
    """Another session that has locked a task. The function locks another one there, or raises without waiting."""
    async with db.dedicated() as conn:
        await conn.execute("BEGIN")
        await conn.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [id])
        yield lambda other: conn.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE NOWAIT", [other])
        await conn.execute("COMMIT")


async def test_a_failure_locks_all_descendants_in_one_order(db: Database, eventually: Eventually) -> None:
    """Locked level by level, the child would be locked first, although the grandchild has the smaller id."""
    parent, child, grandchild = uuid4(), UUID(int=9), UUID(int=5)
    insert = "INSERT INTO tasks (id, task_type, depends_on, created_at, max_attempts) VALUES (%s, 't', %s, now(), 1)"
    async with db.dedicated() as conn, conn.transaction():  # one time for all
        for id, parents in ((parent, None), (child, [parent]), (grandchild, [child])):
            await conn.execute(insert, [id, parents])
    report = await claimed(db, parent)
    async with holding(db, grandchild) as lock:
        failing = asyncio.create_task(in_a_session(db, f"SELECT shiftboss.fail({report}, '{{no}}')"))
        await eventually(lambda: _has(db, 1))
        await lock(child)
    await failing
    assert await status(db, parent, child, grandchild) == ["Failed", "Cancelled", "Cancelled"]


async def test_running_tasks_are_locked_before_waiting_ones(db: Database, eventually: Eventually) -> None:
    waiting = await enqueue(db, delay=timedelta(hours=1))
    running = await enqueue(db)
    await db.tasks.claim("w", 1)
    async with holding(db, running) as lock:
        call = asyncio.create_task(in_a_session(db, child_of(waiting, running)))
        await eventually(lambda: _has(db, 1))
        await lock(waiting)
    await call
