"""Small rules of claim, finish and rescue that no other test would miss. Each was found by a mutant that survived."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask


async def status(db: Database, id: object) -> dict[str, object]:
    [row] = await db.fetch("SELECT * FROM tasks WHERE id = %s", [id])
    return row


async def test_a_dead_worker_takes_nothing_of_others_along(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="a") for _ in range(2)])
    [mine], [other] = await db.tasks.claim("w1", 1), await db.tasks.claim("w2", 1)
    assert await db.workers.worker_died("w1", "lost", "gone") == 1
    assert (await status(db, other.id))["lease"] == other.lease
    assert (await status(db, mine.id))["status"] == "Queued"


async def test_a_worker_that_beats_is_not_lost(db: Database) -> None:
    await db.fetch("SELECT shiftboss.register('w')")
    assert await db.fetch("SELECT workers_lost, tasks_rescued FROM shiftboss.rescue()") == [
        {"workers_lost": 0, "tasks_rescued": 0}
    ]
    assert await db.fetch("SELECT status FROM workers") == [{"status": "active"}]


@pytest.mark.parametrize(("given", "kept"), [(10, 10), (150, 99), (-5, 0)])
async def test_progress_stays_between_0_and_99(db: Database, given: int, kept: int) -> None:
    await db.tasks.enqueue([NewTask(task_type="a")])
    [task] = await db.tasks.claim("w", 1)
    stale = await db.fetch(
        "SELECT shiftboss.progress(%s, %s, %s::smallint[], ARRAY[NULL]) AS stale",
        [[task.id], [task.lease], [given]],
    )
    assert stale == [{"stale": []}]
    assert (await status(db, task.id))["progress"] == kept


async def test_a_freed_child_was_updated_when_its_parent_ended(db: Database) -> None:
    [parent] = await db.tasks.enqueue([NewTask(task_type="a")])
    [child] = await db.tasks.enqueue([NewTask(task_type="b", depends_on=[parent.id])])
    before = await status(db, child.id)
    [task] = await db.tasks.claim("w", 5)
    await db.fetch("SELECT shiftboss.complete(%s, %s, NULL)", [[task.id], [task.lease]])
    after = await status(db, child.id)
    assert (before["hold"], after["hold"]) == ("dependency", None)
    assert after["updated_at"] > before["updated_at"]  # type: ignore[operator]


async def test_the_rescuer_frees_every_parked_key(db: Database) -> None:
    keys = ("k1", "k2", "k3")
    await db.tasks.enqueue([NewTask(task_type="a", concurrency_key=key) for key in keys])
    await db.execute("UPDATE tasks SET hold = 'limit'")
    await db.fetch("SELECT shiftboss.rescue()")
    assert await db.fetch("SELECT count(*) AS n FROM tasks WHERE hold IS NULL") == [{"n": 3}]


async def test_the_end_of_a_cancelled_task_frees_its_key(db: Database) -> None:
    await db.fetch("SELECT shiftboss.set_limit('task_type', 'a', NULL, 1)")
    await db.tasks.enqueue([NewTask(task_type="a", concurrency_key="k") for _ in range(2)])
    [task] = await db.tasks.claim("w", 2)
    assert await db.fetch("SELECT count(*) AS n FROM tasks WHERE hold = 'limit'") == [{"n": 1}]
    assert await db.fetch("SELECT shiftboss.cancelled(%s, %s) AS stale", [[task.id], [task.lease]]) == [
        {"stale": []}
    ]
    assert await db.fetch("SELECT count(*) AS n FROM tasks WHERE hold = 'limit'") == [{"n": 0}]


@pytest.mark.parametrize("state", ["paused = true", "draining = true", "status = 'terminated'"])
async def test_a_worker_that_should_end_or_pause_gets_nothing(db: Database, state: str) -> None:
    await db.fetch("SELECT shiftboss.register('w')")
    await db.tasks.enqueue([NewTask(task_type="a")])
    await db.execute(f"UPDATE workers SET {state}")
    assert await db.tasks.claim("w", 1) == []
    assert await db.fetch("SELECT * FROM shiftboss.assign(ARRAY(SELECT id FROM tasks), 'w')") == []


async def test_a_claim_of_none_or_of_another_process_gets_nothing(db: Database) -> None:
    mine = uuid4()
    await db.fetch("SELECT shiftboss.register('w', p_incarnation => %s)", [mine])
    await db.tasks.enqueue([NewTask(task_type="a")])
    claim = "SELECT count(*) AS n FROM shiftboss.claim('w', %s, p_incarnation => %s)"
    assert await db.fetch(claim, [0, mine]) == [{"n": 0}]
    assert await db.fetch(claim, [1, uuid4()]) == [{"n": 0}]
    assert await db.fetch(claim, [1, mine]) == [{"n": 1}]


async def test_an_empty_type_is_refused_without_other_terms(db: Database) -> None:
    with pytest.raises(Exception, match="task_type must not be empty"):
        await db.execute("INSERT INTO tasks (task_type) VALUES ('')")


async def test_a_key_that_has_used_up_its_rate_delays_its_own_tasks_only(db: Database) -> None:
    await db.execute(
        "INSERT INTO shiftboss.limits (kind, name, rate, rate_period, rate_per) VALUES ('task_type', 'a', 2, '1 minute', 'key')"
    )
    await db.tasks.enqueue([NewTask(task_type="a", concurrency_key="k") for _ in range(4)])
    [other] = await db.tasks.enqueue(
        [NewTask(task_type="a", concurrency_key="other", delay=timedelta(hours=1))]
    )
    before = (await status(db, other.id))["run_at"]
    assert len(await db.tasks.claim("w", 10)) == 2
    late = await db.fetch(
        "SELECT run_at - shiftboss.now() AS wait FROM tasks WHERE status = 'Queued' AND concurrency_key = 'k' ORDER BY created_at"
    )
    assert [
        timedelta(seconds=s - 25) < row["wait"] <= timedelta(seconds=s)
        for s, row in zip((30, 60), late, strict=True)
    ] == [True, True]
    assert (await status(db, other.id))["run_at"] == before
    assert await db.fetch("SELECT FROM tasks WHERE status = 'In Progress' AND run_at IS NOT NULL") == []
