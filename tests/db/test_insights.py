"""The read model: stable and fast lists, reasons and figures."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from shiftboss.db import Database
from shiftboss.db.insights import BadCursor, TaskFilter
from shiftboss.db.insights.series import percentile
from shiftboss.model.errors import UsageError
from shiftboss.model.task import BUCKETS, NewTask
from shiftboss.model.worker import Member

MANY = """INSERT INTO tasks (status, task_type, params, created_at, generation_started_at,
        generation_processed_at)
    SELECT s, 'kind-' || n % 7, jsonb_build_object('n', n), now() - n * interval '1 second',
        CASE WHEN s <> 'Queued' THEN now() - n * interval '1 second' END,
        CASE WHEN s NOT IN ('Queued', 'In Progress') THEN now() - n * interval '1 second' END
    FROM generate_series(1, %s) n, LATERAL (SELECT CASE WHEN n % 997 = 0 THEN 'Failed'
        WHEN n % 1009 = 0 THEN 'Cancelled' WHEN n % 5 = 0 THEN 'Queued'
        WHEN n % 4999 = 0 THEN 'In Progress' ELSE 'Complete' END AS s) x"""


async def all_ids(db: Database, wanted: TaskFilter, limit: int) -> list[UUID]:
    ids: list[UUID] = []
    cursor = None
    while True:
        page = await db.insights.tasks.page(wanted, cursor, limit)
        ids += [row["id"] for row in page.items]
        cursor = page.next
        if cursor is None:
            return ids


async def test_pages_are_stable_while_rows_arrive(db: Database) -> None:
    await db.execute(MANY.replace("%s", "300"))
    wanted = TaskFilter()
    first = await db.insights.tasks.page(wanted, None, 100)
    await db.tasks.enqueue([NewTask(task_type="late") for _ in range(50)])
    ids = [row["id"] for row in first.items]
    cursor = first.next
    while cursor:
        page = await db.insights.tasks.page(wanted, cursor, 100)
        ids += [row["id"] for row in page.items]
        cursor = page.next
    assert len(ids) == len(set(ids)) == 300


async def test_filters(db: Database) -> None:
    await db.execute(MANY.replace("%s", "2000"))
    assert len(await all_ids(db, TaskFilter(status="Failed"), 10)) == 2
    assert len(await all_ids(db, TaskFilter(task_type="kind-3"), 50)) == 286
    assert len(await all_ids(db, TaskFilter(text='"n": 1234'), 50)) == 1
    assert len(await all_ids(db, TaskFilter(text="100%"), 50)) == 0
    since = datetime.now(UTC) - timedelta(seconds=500)
    assert 495 <= len(await all_ids(db, TaskFilter(since=since), 50)) <= 500
    with pytest.raises(UsageError, match="no status"):
        await db.insights.tasks.page(TaskFilter(status="Done"))
    with pytest.raises(BadCursor):
        await db.insights.tasks.page(TaskFilter(), "nonsense")


async def test_a_search_in_vain_is_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shiftboss.db.insights.tasklist.STRETCH", 100)
    await db.execute(MANY.replace("%s", "1000"))
    page = await db.insights.tasks.page(TaskFilter(task_type="nobody"), None, 10)
    assert page.items == []
    assert page.next is not None, "there is more to look at"
    ids = await all_ids(db, TaskFilter(task_type="kind-1"), 10)
    assert len(ids) == len(set(ids)) == 143


@pytest.mark.serial
async def test_lists_are_quick_beside_many_tasks(db: Database) -> None:
    await db.execute(MANY.replace("%s", "60000"))
    await db.execute("ANALYZE tasks")
    for status in (None, "Queued", "Complete", "Failed"):
        began = time.perf_counter()
        page = await db.insights.tasks.page(TaskFilter(status=status), None, 50)
        await db.insights.tasks.page(TaskFilter(status=status), page.next, 50)
        assert time.perf_counter() - began < 0.5, status


async def test_a_large_backlog_is_counted_in_part_and_no_queue_is_left_out(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftboss.db.insights.fleet.COUNTED", 5)
    early = [NewTask(task_type="a", queue="early") for _ in range(6)]
    await db.tasks.enqueue(early[:4])
    assert [(row["queued"], row["more"]) for row in await db.insights.fleet.depths(fresh=True)] == [
        (4, False)
    ]
    await db.tasks.enqueue(early[4:])
    await db.tasks.enqueue([NewTask(task_type="a", queue="late") for _ in range(3)])
    found = await db.insights.fleet.depths(fresh=True)
    assert [(row["name"], row["queued"], row["more"]) for row in found] == [
        ("early", 5, True),
        ("late", 1, True),
    ]
    assert all(row["oldest_seconds"] is not None for row in found)
    await db.execute("SELECT shiftboss.count_queues(5)")
    counted = await db.insights.fleet.depths(fresh=True)
    assert [(row["name"], row["queued"], row["counted"]) for row in counted] == [
        ("early", 6, 6),
        ("late", 3, 3),
    ]
    exact = await db.insights.fleet.queues(fresh=True)
    assert [row["queued"] for row in exact] == [6, 3]


async def test_waiting_tasks_are_counted_beside_more_suspended_ones(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftboss.db.insights.fleet.COUNTED", 5)
    await db.execute("INSERT INTO tasks (task_type, hold) SELECT 'a', 'sleep' FROM generate_series(1, 6)")
    await db.tasks.enqueue([NewTask(task_type="a", queue=queue) for queue in ("one", "two")])
    ((parent, *_),) = await db.tasks.enqueue([NewTask(task_type="a", queue="one")])
    await db.tasks.enqueue([NewTask(task_type="a", queue="one", depends_on=[parent])])
    await db.execute("UPDATE tasks SET hold = 'limit' WHERE queue = 'two'")
    found = await db.insights.fleet.depths(fresh=True)
    assert [(row["name"], row["queued"], row["ready"], row["more"]) for row in found if row["queued"]] == [
        ("one", 3, 2, False),
        ("two", 1, 0, False),
    ]


async def test_detail_tells_attempts_and_why(db: Database) -> None:
    ((id, *_),) = await db.tasks.enqueue([NewTask(task_type="render")])
    detail = await db.insights.tasks.detail(id)
    assert detail is not None
    assert detail["why"][0]["reason"] == "no capable worker"
    await db.workers.register(Member(id="w"))
    (task,) = await db.tasks.claim("w")
    await db.tasks.fail([(task.id, task.lease)], ["boom"])
    detail = await db.insights.tasks.detail(id)
    assert detail is not None
    assert [(a["outcome"], a["error"]) for a in detail["attempts_made"]] == [("failed", "boom")]


async def test_figures_of_workers_and_time(db: Database) -> None:
    await db.workers.register(Member(id="w"))
    buckets = [0] * (len(BUCKETS) + 1)
    buckets[3] = 10
    work = {
        "queue": "default",
        "task_type": "t",
        "completed": 8,
        "failed": 2,
        "seconds": 0.4,
        "buckets": buckets,
    }
    await db.workers.beat("w", [], {}, [work])
    (worker,) = await db.insights.fleet.workers()
    assert (worker["processed_today"], worker["error_rate"]) == (10, 0.2)
    points = await db.insights.series.throughput(timedelta(hours=1), timedelta(minutes=1))
    assert len(points) in (60, 61)
    busy = [point for point in points if point["completed"]]
    assert [(p["completed"], p["failed"]) for p in busy] == [(8, 2)]
    assert BUCKETS[2] < busy[0]["p50"] <= BUCKETS[3]
    (before,) = await db.insights.figures.work()
    for _ in range(2):
        await db.execute(
            "UPDATE shiftboss.stats SET minute = now() - interval '8 days' WHERE minute > '-infinity'"
        )
        await db.tasks.tidy(timedelta(days=7))
        assert await db.insights.figures.work() == [before], "counters outlive the minutes"
    assert not any(
        p["completed"] for p in await db.insights.series.throughput(timedelta(days=9), timedelta(hours=1))
    )


async def test_charts_over_days_read_slots_and_show_the_same(db: Database) -> None:
    await db.execute(
        "INSERT INTO shiftboss.stats (minute, worker_id, queue, task_type, completed, failed, seconds, buckets)"
        " SELECT date_trunc('minute', now()) - make_interval(mins => m), 'w' || m % 2, 'q' || m % 3, 't', m % 5, 1,"
        " 0.5, ARRAY[m % 4, 1] FROM generate_series(0, 6000, 7) m WHERE m NOT BETWEEN 1000 AND 4000"
    )
    spans = [(timedelta(days=5), timedelta(hours=2)), (timedelta(hours=3), timedelta(minutes=1))]

    async def shown() -> list[Any]:
        return [await db.insights.series.throughput(*one, queue=q) for one in spans for q in (None, "q1")]

    before = await shown()
    assert sum(point["failed"] for point in before[0]) > 400
    for _ in range(4):  # each call folds at most a day, and skips the days without work
        await db.execute("SELECT shiftboss.fold_stats()")
    behind = await db.fetch_one(
        "SELECT now() - max(slot) < interval '45 minutes' AS done FROM shiftboss.stats_slots"
    )
    assert behind == {"done": True}
    assert await shown() == before
    await db.execute(
        "DELETE FROM shiftboss.stats WHERE minute < (SELECT max(slot) FROM shiftboss.stats_slots)"
    )
    assert (await shown())[0] == before[0], "days are read from the slots"
    await db.tasks.tidy(timedelta(minutes=30))
    left = await db.fetch_one(
        "SELECT min(slot) > now() - interval '1 hour' AS new FROM shiftboss.stats_slots"
    )
    assert left in ({"new": True}, {"new": None})


def test_percentiles_of_a_histogram() -> None:
    assert percentile([], 0.5) is None
    assert percentile([0, 10], 0.5) == pytest.approx(0.0075)
    assert percentile([0] * len(BUCKETS) + [5], 0.99) == BUCKETS[-1]


async def test_the_snapshot_is_fresh(db: Database) -> None:
    assert (await db.insights.overview.snapshot())["queue"]["queued"] == 0
    run = await db.runs.start_run("verify")
    snapshot = await db.insights.overview.snapshot()
    assert snapshot["queue"]["queued"] == 1
    assert [(r["id"], r["progress"]) for r in snapshot["current_runs"]] == [(run.id, 0)]


async def test_a_silent_worker_and_a_stuck_task_raise_alerts(db: Database) -> None:
    await db.workers.register(Member(id="w"))
    await db.tasks.enqueue([NewTask(task_type="t")])
    await db.tasks.claim("w")
    assert await db.insights.overview.alerts() == []
    await db.execute("UPDATE workers SET last_heartbeat = now() - interval '6 minutes'")
    await db.execute("UPDATE tasks SET generation_started_at = now() - interval '11 minutes'")
    assert {alert["kind"] for alert in await db.insights.overview.alerts()} == {"stale_worker", "stuck_task"}
