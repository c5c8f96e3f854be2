"""Rules of how attempts end that no other test would miss. Each was found by a mutant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.db.connection import connect
from shiftboss.model.task import NewTask
from tests.queue.test_claim_rules import holding, impatient
from tests.queue.test_queue import enqueue, finish
from tests.queue.test_small_rules import status
from tests.servers import direct


async def test_when_a_failed_attempt_ended_and_which_it_was(db: Database) -> None:
    id = await enqueue(db, max_attempts=2)
    for number, end in ((1, "Queued"), (2, "Failed")):
        [task] = await db.tasks.claim("w")
        assert await db.tasks.fail([(task.id, task.lease)], ["boom"]) == []
        row = await status(db, id)
        ended = row["generation_processed_at"]
        assert (row["status"], row["attempts"], row["lease_expires_at"]) == (end, number, ended)
        assert (ended is None) == (row["generation_started_at"] is None) == (end == "Queued")
    past = await db.fetch("SELECT attempt, outcome FROM shiftboss.past_attempts ORDER BY attempt")
    assert past == [{"attempt": n, "outcome": "failed"} for n in (1, 2)]


@pytest.mark.parametrize(
    "report",
    [
        "complete(%s, %s, NULL)",
        "fail(%s, %s, '{boom}')",
        "defer(%s, %s, '{0}', '{later}')",
        "cancelled(%s, %s)",
        "extend(%s, %s, '1 hour')",
        "progress(%s, %s, '{40}', '{a}')",
    ],
)
async def test_a_report_with_another_lease_changes_nothing(db: Database, report: str) -> None:
    id = await enqueue(db)
    [task] = await db.tasks.claim("w")
    before = await status(db, id)
    assert await db.fetch(f"SELECT shiftboss.{report} AS ids", [[id], [task.lease + 1]]) == [{"ids": [id]}]
    assert await status(db, id) == before
    assert await db.fetch("SELECT FROM shiftboss.past_attempts") == []
    counted = await db.fetch("SELECT name, value FROM shiftboss.counter_tallies")
    assert counted == [{"name": "stale_reports", "value": 1}]


async def test_the_backoff_grows_from_the_first_attempt_on(db: Database) -> None:
    id = await enqueue(db, backoff=timedelta(seconds=80), backoff_factor=8)
    for low, high in ((60, 100), (480, 800)):
        [task] = await db.tasks.claim("w")
        await db.tasks.fail([(task.id, task.lease)], ["boom"])
        [row] = await db.fetch(
            "SELECT run_at - updated_at AS wait, wait_reason FROM tasks WHERE id = %s", [id]
        )
        assert timedelta(seconds=low) <= row["wait"] <= timedelta(seconds=high)
        assert row["wait_reason"] == "backoff after a failed attempt"
        await db.execute("UPDATE tasks SET run_at = NULL")


@pytest.mark.parametrize(
    ("outcome", "crashes", "most", "said"),
    [
        ("crashed", 0, 3, "boom"),
        ("crashed", 0, 1, "boom"),
        ("failed", 1, 1, "boom"),
        ("crashed", 1, 3, "poison: this task crashed its worker 2 times; last: boom"),
    ],
)
async def test_only_a_second_crash_is_called_poison(
    db: Database, outcome: str, crashes: int, most: int, said: str
) -> None:
    id = await enqueue(db, max_attempts=most)
    [task] = await db.tasks.claim("w")
    await db.execute("UPDATE tasks SET crashes = %s", [crashes])
    await db.fetch("SELECT shiftboss.fail(%s, %s, '{boom}', %s)", [[id], [task.lease], [outcome]])
    assert (await status(db, id))["error_message"] == said


@pytest.mark.parametrize("end", ["fail(%s, %s, '{boom}')", "cancelled(%s, %s)"])
async def test_a_cancelled_task_shows_why_and_its_attempt_is_stored(db: Database, end: str) -> None:
    id = await enqueue(db)
    [task] = await db.tasks.claim("w")
    await db.execute("UPDATE tasks SET cancel_requested_at = now(), wait_reason = 'not needed'")
    assert await db.fetch(f"SELECT shiftboss.{end} AS stale", [[id], [task.lease]]) == [{"stale": []}]
    row = await status(db, id)
    assert (row["status"], row["error_message"]) == ("Cancelled", "not needed")
    assert await db.fetch("SELECT attempt FROM shiftboss.past_attempts") == [{"attempt": 1}]


@pytest.mark.session
@pytest.mark.parametrize(
    ("call", "channel"),
    [
        ("fail(%s, %s, '{boom}')", "shiftboss_tasks"),
        ("defer(%s, %s, '{0}', '{later}')", "shiftboss_tasks"),
        ("complete(%s, %s, NULL)", "shiftboss_results"),
        ("cancelled(%s, %s)", "shiftboss_results"),
    ],
)
async def test_an_end_wakes_workers_or_whoever_waits_for_it(db: Database, call: str, channel: str) -> None:
    id = await enqueue(db)
    [task] = await db.tasks.claim("w")
    await db.execute("UPDATE tasks SET awaited = true")
    async with connect(direct(db.url)) as listener:
        for name in ("shiftboss_tasks", "shiftboss_results"):
            await listener.execute(f"LISTEN {name}")
        await db.fetch("SELECT shiftboss.arm()")
        await db.fetch(f"SELECT shiftboss.{call}", [[id], [task.lease]])
        await db.execute("SELECT pg_notify('shiftboss_results', 'last')")
        heard = [(note.channel, note.payload) async for note in listener.notifies(timeout=5, stop_after=2)]
    assert [name for name, _ in heard] == [channel, "shiftboss_results"]
    assert heard[-1][1] == "last"


async def test_an_extension_is_of_the_given_leases_and_names_the_stale(db: Database) -> None:
    first, second = await enqueue(db), await enqueue(db)
    leases = {task.id: task.lease for task in await db.tasks.claim("w", 2)}
    given = [(first, leases[first]), (second, leases[second] + 1)]
    assert await db.tasks.extend(given, timedelta(hours=1)) == [second]
    assert (await status(db, first))["lease_expires_at"] is not None
    assert (await status(db, second))["lease_expires_at"] is None


async def test_progress_is_of_the_given_leases_and_names_the_stale(db: Database) -> None:
    first, second = await enqueue(db), await enqueue(db)
    leases = {task.id: task.lease for task in await db.tasks.claim("w", 2)}
    stale = await db.fetch(
        "SELECT shiftboss.progress(%s, %s, '{40,50}', '{a,b}') AS stale",
        [[first, second], [leases[first], leases[second] + 1]],
    )
    assert stale == [{"stale": [second]}]
    rows = [await status(db, id) for id in (first, second)]
    assert [(row["progress"], row["progress_message"]) for row in rows] == [(40, "a"), (None, None)]


@pytest.mark.session
async def test_the_end_of_a_task_waits_for_no_limit_of_another_type(db: Database) -> None:
    for name in ("a", "b"):
        await db.tasks.set_limit("task_type", name, max_per_key=1)
    await db.tasks.set_limit("queue", "a", max_running=1)
    await enqueue(db, task_type="a", concurrency_key="k")
    [task] = await db.tasks.claim("w")
    others = "SELECT FROM shiftboss.limits WHERE name = 'b' OR kind = 'queue' FOR UPDATE"
    async with holding(db, others):
        await impatient(db, "SELECT shiftboss.complete(%s, %s, NULL)", [task.id], [task.lease])
    assert (await status(db, task.id))["status"] == "Complete"


async def test_the_end_of_a_key_frees_its_parked_tasks_only(db: Database) -> None:
    await db.tasks.set_limit("task_type", "t", max_per_key=1)
    parent = await enqueue(db, task_type="parent", delay=timedelta(hours=1))
    running = await enqueue(db, concurrency_key="k")
    held = await enqueue(db, concurrency_key="k", depends_on=[parent])
    parked = [await enqueue(db, concurrency_key="k") for _ in range(2)]
    [task] = await db.tasks.claim("w", 10)
    assert task.id == running
    await finish(db, task)
    holds = [(await status(db, id))["hold"] for id in (held, *parked)]
    assert holds == ["dependency", None, "limit"]


async def test_a_child_of_three_waits_for_all_and_ends_with_the_first_that_fails(db: Database) -> None:
    parents = [await enqueue(db, task_type="parent", max_attempts=1) for _ in range(3)]
    child = await enqueue(db, depends_on=parents)
    one, two, three = await db.tasks.claim("w", 3)
    await finish(db, one)
    assert (await status(db, child))["hold"] == "dependency"
    await finish(db, two)
    await db.tasks.fail([(three.id, three.lease)], ["boom"])
    row = await status(db, child)
    assert (row["status"], row["hold"], row["error_message"]) == (
        "Cancelled",
        None,
        f"dependency {three.id} is Failed",
    )
    assert row["generation_processed_at"] == row["updated_at"]


@pytest.mark.session
async def test_which_tasks_are_locked(db: Database) -> None:
    for name in ("a", "b"):
        await db.tasks.set_limit("task_type", name, max_per_key=5)
    keyed, plain, parent = (
        await enqueue(db, task_type="a", concurrency_key="k"),
        await enqueue(db, task_type="a"),
        await enqueue(db, task_type="c"),
    )
    child = await enqueue(db, task_type="d", depends_on=[parent])
    ask = "SELECT shiftboss.locked(%s) AS ids"
    everything = [keyed, plain, parent]
    locks: list[tuple[str, list[Any], list[Any]]] = [
        ("SELECT FROM tasks WHERE id = %s FOR UPDATE", [plain], [plain]),
        ("SELECT FROM tasks WHERE id = %s FOR UPDATE", [child], [parent]),
        ("SELECT FROM shiftboss.limits WHERE name = %s FOR UPDATE", ["a"], [keyed]),
        ("SELECT FROM shiftboss.limits WHERE name = %s FOR UPDATE", ["b"], []),
    ]
    for statement, values, found in locks:
        async with holding(db, statement, *values):
            assert await impatient(db, ask, everything) == [{"ids": found}]


async def test_a_released_task_is_as_if_it_had_not_run(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t")])
    [task] = await db.tasks.claim("w")
    await db.fetch("SELECT shiftboss.defer(%s, %s, '{0}', '{later}')", [[task.id], [task.lease]])
    row = await status(db, task.id)
    names = ("status", "lease", "lease_expires_at", "worker_id", "generation_started_at", "attempts")
    assert [row[name] for name in names] == ["Queued", None, None, None, None, 0]
    assert (row["wait_reason"], row["run_at"]) == ("later", None)
    assert await db.fetch("SELECT outcome FROM shiftboss.past_attempts") == [{"outcome": "released"}]
