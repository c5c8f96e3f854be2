"""Edge cases of the queue: extreme options, late reports, task leases, deleted lanes and keys."""

from __future__ import annotations

import random
import string
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from shiftboss.db import Database
from shiftboss.db.connection import connect
from shiftboss.db.migrate import migrate
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.task import NewTask, new_id
from tests.queue.test_queue import enqueue, finish, status
from tests.servers import direct

LONG = "".join(random.Random(1).choices(string.ascii_letters + string.digits, k=3000))


async def later(db: Database, after: timedelta, *statements: str) -> list[Any]:
    """Run statements `after` from now; the rows of the last."""
    async with db.dedicated() as conn:
        moment = (datetime.now(UTC) + after).isoformat()
        await conn.execute("SELECT set_config('shiftboss.now', %s, false)", [moment])
        rows: list[Any] = []
        for statement in statements:
            rows = await (await conn.execute(statement)).fetchall()
        return rows


@pytest.mark.parametrize("factor", [None, 3e38, float("inf")])
async def test_a_long_backoff_is_cut_and_hinders_nobody(db: Database, factor: float | None) -> None:
    id = await enqueue(db, max_attempts=1000, backoff=timedelta(seconds=1), backoff_factor=factor)
    await db.execute("UPDATE tasks SET attempts = 900")
    await db.tasks.claim("w")
    await later(db, timedelta(hours=1), "SELECT * FROM shiftboss.rescue()")
    row = await db.tasks.get(id)
    assert row is not None
    assert row["status"] == "Queued"
    assert row["error_message"] == "its worker stopped beating"


async def test_backoff_grows_by_its_factor_and_never_past_its_most(db: Database) -> None:
    waits = "SELECT shiftboss.backoff('2 s', 3, '10 s', %s) AS w FROM generate_series(1, 200)"
    for attempt, low, high in ((1, 1.5, 2.5), (2, 4.5, 7.5), (3, 6.0, 10.0), (1000, 6.0, 10.0)):
        seconds = [row["w"].total_seconds() for row in await db.fetch(waits, [attempt])]
        assert low <= min(seconds) < max(seconds) <= high


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("deadline", "infinity"),
        ("deadline", "-infinity"),
        ("deadline", "0044-03-15 BC"),
        ("timeout", "90000000 years"),
        ("backoff_max", "200 years"),
        ("concurrency_key", LONG),
        ("dedup_key", LONG),
        ("task_type", LONG),
        ("queue", LONG),
    ],
)
async def test_terms_that_would_stop_every_claim_do_not_go_in(db: Database, column: str, value: str) -> None:
    task = {"task_type": "t", column: value}
    with pytest.raises(DatabaseError, match=column):
        await db.fetch("SELECT * FROM shiftboss.enqueue(jsonb_build_array(%s::jsonb))", [task])
    await db.execute("INSERT INTO tasks (task_type) VALUES ('t')")
    with pytest.raises(DatabaseError, match=column.partition("_")[0]):  # one is refused by its index
        await db.execute(f"UPDATE tasks SET {column} = %s", [value])
    assert len(await db.tasks.claim("w", 10)) == 1


@pytest.mark.parametrize(
    ("terms", "word"),
    [
        ({"deadline": datetime(2999, 1, 1, tzinfo=UTC)}, "deadline"),
        ({"timeout": timedelta(days=40_000)}, "timeout"),
        ({"backoff_max": timedelta(days=70_000)}, "backoff_max"),
        ({"concurrency_key": "ä" * 501}, "concurrency_key"),
        ({"dedup_key": LONG}, "dedup_key"),
        ({"queue": LONG}, "queue"),
        ({"task_type": LONG}, "task_type"),
    ],
)
async def test_absurd_terms_are_refused_before_they_are_sent(terms: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        NewTask(**({"task_type": "t"} | terms)).check()


async def test_old_rows_are_brought_within_the_bounds(db: Database, database_url: str) -> None:
    """A database of before: rows that nobody refused, functions with other arguments."""
    await db.execute("DELETE FROM shiftboss.migrations WHERE name LIKE '%0063%'")
    await db.execute("ALTER TABLE tasks DISABLE TRIGGER USER")
    await db.execute(
        "INSERT INTO shiftboss.lanes SELECT shiftboss.lane_of('default', 't', 5::int2, NULL, NULL), 'default', 't', 5"
    )
    await db.execute(
        "INSERT INTO tasks (task_type, deadline, timeout, backoff_max, concurrency_key, dedup_key) VALUES "
        "('t', 'infinity', '90000000 years', '200 years', %(key)s, repeat('a', 20000)), "
        "(%(key)s, NULL, NULL, NULL, NULL, NULL), ('t', '2100-01-01', '1 s', '1 s', 'k', 'd')",
        {"key": LONG},
    )
    await db.execute("ALTER TABLE tasks ENABLE TRIGGER USER")
    await db.execute(
        "CREATE FUNCTION shiftboss.lose_worker(text[], text, text, boolean) RETURNS int LANGUAGE sql AS 'SELECT 1'"
    )
    assert (await migrate(database_url)).applied
    claimed = {task.deadline: task.timeout for task in await db.tasks.claim("w", 10)}
    assert claimed.keys() == {None, datetime(2100, 1, 1, tzinfo=UTC)}
    assert claimed[None] is not None
    assert await db.workers.lose_worker(["w"]) == 2
    rows = await db.fetch("SELECT status FROM tasks WHERE task_type <> 't'")
    assert [row["status"] for row in rows] == ["Failed"]


async def test_a_running_task_keeps_its_lane_and_can_be_claimed_again(db: Database) -> None:
    id = await enqueue(db)
    [task] = await db.tasks.claim("w")
    await later(db, timedelta(days=2), "SELECT shiftboss.tidy()")
    await db.tasks.fail([(task.id, task.lease)], ["boom"])
    assert [t.id for t in await db.tasks.claim("w")] == [id]


REPORTS = {
    "complete": "shiftboss.complete(%s, %s, NULL)",
    "fail": "shiftboss.fail(%s, %s, ARRAY['boom'])",
    "defer": "shiftboss.defer(%s, %s, ARRAY[interval '1 s'], ARRAY['later'])",
    "release": "shiftboss.defer(%s, %s, ARRAY[interval '0'], ARRAY['back'])",
    "cancelled": "shiftboss.cancelled(%s, %s)",
    "progress": "shiftboss.progress(%s, %s, ARRAY[5::smallint], NULL)",
    "extend": "shiftboss.extend(%s, %s, '1 minute')",
}


@pytest.mark.parametrize("first", ["complete", "fail", "defer", "release", "cancelled"])
async def test_only_a_report_of_the_same_kind_is_not_stale(db: Database, first: str) -> None:
    await enqueue(db)
    [task] = await db.tasks.claim("w")

    async def report(kind: str) -> list[UUID]:
        row = await db.fetch_one(f"SELECT {REPORTS[kind]} AS stale", [[task.id], [task.lease]])
        assert row is not None
        return list(row["stale"])

    assert await report(first) == []
    same = {"defer", "release"} if first in ("defer", "release") else {first}
    for kind in REPORTS:
        assert await report(kind) == ([] if kind in same else [task.id]), kind


async def test_to_extend_a_lease_never_shortens_it(db: Database) -> None:
    id = await enqueue(db)
    [task] = await db.tasks.claim("w")
    for span in (timedelta(minutes=20), timedelta(minutes=1)):
        assert await db.tasks.extend([(task.id, task.lease)], span) == []
    # the worker beats: its tasks are its own, whatever became of a lease of theirs
    await later(
        db, timedelta(minutes=30), "SELECT FROM shiftboss.beat('w')", "SELECT * FROM shiftboss.rescue()"
    )
    assert await status(db, id) == ["In Progress"]
    # it falls silent: their own lease, were it not over, would still hold
    await later(db, timedelta(minutes=50), "SELECT * FROM shiftboss.rescue()")
    assert await status(db, id) == ["Queued"]


async def test_a_lease_of_its_own_holds_for_the_longest_that_was_asked(db: Database) -> None:
    id = await enqueue(db)
    [task] = await db.tasks.claim("w")
    for span in (timedelta(minutes=20), timedelta(minutes=1)):
        await db.tasks.extend([(task.id, task.lease)], span)
    await later(db, timedelta(minutes=19), "SELECT * FROM shiftboss.rescue()")
    assert await status(db, id) == ["In Progress"]


async def dead(db: Database, **terms: Any) -> UUID:
    id = await enqueue(db, max_attempts=1, **terms)
    [task] = await db.tasks.claim("w")
    await db.tasks.fail([(task.id, task.lease)], ["boom"])
    return id


async def test_only_what_waits_for_a_time_becomes_due(db: Database) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    ended, due, parent = await dead(db), await enqueue(db), await enqueue(db, run_at=later)
    child = await enqueue(db, run_at=later, depends_on=[parent])
    asleep = await enqueue(db, run_at=later)
    await db.execute("UPDATE tasks SET hold = 'sleep' WHERE id = %s", [asleep])
    assert set(await db.tasks.run_now([due, parent, child, asleep, ended])) == {parent, child}
    assert {task.id for task in await db.tasks.claim("w", 10)} == {due, parent}, "the child waits for it"
    assert await db.tasks.run_now([parent, child]) == []


async def test_what_can_be_retried_is_and_the_rest_is_left_out(db: Database) -> None:
    plain = await dead(db)
    older, younger = await dead(db, dedup_key="k"), await dead(db, dedup_key="k")
    shadowed = await dead(db, dedup_key="live")
    await enqueue(db, dedup_key="live")
    of_run = await db.fetch_one("SELECT id FROM shiftboss.start_run('bot', NULL, NULL, '{}', 'default')")
    assert of_run is not None
    run_task = await db.fetch_one("SELECT id FROM tasks WHERE run_id = %s", [of_run["id"]])
    assert run_task is not None
    await db.tasks.cancel([run_task["id"]])
    again = await db.tasks.retry([plain, older, younger, shadowed, run_task["id"]])
    assert sorted(again) == sorted([plain, younger])
    assert await status(db, older, shadowed, run_task["id"]) == ["Failed", "Failed", "Cancelled"]


async def test_a_chain_whose_head_is_live_under_its_key_hangs_on_the_live_one(db: Database) -> None:
    def chain() -> list[NewTask]:
        head = NewTask(task_type="head", id=new_id(), dedup_key="k")
        twin = NewTask(task_type="head", id=new_id(), dedup_key="k")
        return [head, twin, NewTask(task_type="tail", depends_on=[twin.id or new_id()])]

    first, second = await db.tasks.enqueue(chain()), await db.tasks.enqueue(chain())
    assert [one.created for one in first] == [True, False, True]
    assert [one.created for one in second] == [False, False, True]
    assert {one.id for one in (*first[:2], *second[:2])} == {first[0].id}
    [head] = await db.tasks.claim("w", 10)
    await finish(db, head)
    assert {t.id for t in await db.tasks.claim("w", 10)} == {first[2].id, second[2].id}


async def test_a_finish_looks_at_the_parked_tasks_of_its_key_only(db: Database) -> None:
    await db.tasks.set_limit("task_type", "t", max_per_key=3)
    await db.tasks.enqueue([NewTask(task_type="t", concurrency_key=key) for key in "aabb"])
    held = await db.tasks.claim("w", 1)
    await db.execute(
        "UPDATE tasks SET hold = 'limit' WHERE status = 'Queued'"
    )  # forgotten, though there is room
    await finish(db, *held)
    rows = await db.fetch("SELECT concurrency_key AS k, hold FROM tasks WHERE status = 'Queued'")
    assert {(row["k"], row["hold"]) for row in rows} == {("a", None), ("b", "limit")}
    await db.workers.rescue()
    assert await db.fetch("SELECT FROM tasks WHERE hold IS NOT NULL") == []


async def test_however_many_are_parked_a_finish_and_a_rescue_cost_the_same(db: Database) -> None:
    await db.tasks.set_limit("task_type", "t", max_per_key=1)
    await db.tasks.enqueue([NewTask(task_type="t", concurrency_key="k") for _ in range(3)])
    [held] = await db.tasks.claim("w", 10)
    await db.execute(
        "INSERT INTO tasks (task_type, concurrency_key, hold) SELECT 't', 'other', 'limit' FROM generate_series(1, 20000)"
    )
    await enqueue(db, concurrency_key="other")
    await db.tasks.claim("w", 1)  # the other key is full as well
    await db.execute("ANALYZE tasks")
    ends = f"shiftboss.complete(ARRAY['{held.id}'::uuid], ARRAY[{held.lease}::bigint], NULL)"
    pages = {}
    async with connect(direct(db.url)) as conn:
        plans = ["shiftboss.rescue()", "shiftboss.complete(ARRAY[gen_random_uuid()], ARRAY[1::bigint], NULL)"]
        for call in (
            *plans,
            "shiftboss.rescue()",
            ends,
        ):  # a session's first calls plan, which touches the catalogs
            rows = await conn.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {call}")
            [row] = await rows.fetchall()
            plan = row["QUERY PLAN"][0]["Plan"]
            pages[call] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert max(pages["shiftboss.rescue()"], pages[ends]) < 300, pages
    assert len(await db.tasks.claim("w", 10)) == 1


async def test_whoever_watches_wakes_the_workers_for_what_is_queued(db: Database) -> None:
    id = await enqueue(db, queue="q")
    async with connect(direct(db.url)) as listener:
        await listener.execute("LISTEN shiftboss_tasks")
        await db.fetch_one("SELECT shiftboss.arm()")
        await db.tasks.watch([id])
        heard = [note.channel async for note in listener.notifies(timeout=5, stop_after=1)]
    assert heard == ["shiftboss_tasks"]


async def test_of_a_limited_type_the_chosen_task_is_assigned_and_no_older_one(db: Database) -> None:
    await db.tasks.set_limit("task_type", "t", max_running=5)
    ids = [made.id for made in await db.tasks.enqueue([NewTask(task_type="t") for _ in range(4)])]
    assert [t.id for t in await db.tasks.assign([ids[2]], "w")] == [ids[2]]


async def test_rows_come_back_in_the_order_of_the_tasks(db: Database) -> None:
    parent, child = new_id(), new_id()
    made = await db.tasks.enqueue(
        [
            NewTask(task_type="child", id=child, depends_on=[parent]),
            NewTask(task_type="other"),
            NewTask(task_type="parent", id=parent),
        ]
    )
    rows = {row["id"]: row["task_type"] for row in await db.fetch("SELECT id, task_type FROM tasks")}
    assert [rows[one.id] for one in made] == ["child", "other", "parent"]


@pytest.mark.parametrize(("policy", "end"), [("cancel", "Cancelled"), ("fail", "Failed"), ("run", "Queued")])
async def test_a_parent_that_is_deleted_has_failed_its_children(db: Database, policy: Any, end: str) -> None:
    parent = await enqueue(db)
    child = await enqueue(db, depends_on=[parent], on_dependency_failure=policy)
    await db.execute("DELETE FROM tasks WHERE id = %s", [parent])
    assert await status(db, child) == [end]
    assert len(await db.tasks.claim("w")) == (end == "Queued")


async def test_a_priority_that_was_asked_for_goes_before_that_of_the_origin(db: Database) -> None:
    tasks = [NewTask(task_type="t", origin="user_requested", priority=p) for p in (5, None)]
    for some in ([tasks[0]], [tasks[1]], tasks):
        await db.tasks.enqueue(some)
    rows = await db.fetch("SELECT priority FROM tasks ORDER BY created_at")
    assert [row["priority"] for row in rows] == [5, 10, 5, 10]
    assert len(await db.tasks.claim("w", 10)) == 4
