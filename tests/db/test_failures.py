"""Error groups and the work of each queue, as the pages show them."""

from __future__ import annotations

from shiftboss.db import Database
from shiftboss.leader.pruner import Pruner
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member


async def test_groups_of_errors_show_while_a_task_failed_by_them_last(db: Database) -> None:
    await db.workers.register(Member(id="w"))
    await db.tasks.enqueue([NewTask(task_type="pay", max_attempts=1) for _ in range(3)])
    held = [(task.id, task.lease) for task in await db.tasks.claim("w", 3)]
    errors = ["TimeoutError: no answer", "TimeoutError: no answer", "KeyError: 'order'"]
    await db.tasks.fail(held, errors, ["failed"] * 3)
    await Pruner(db).fold()
    groups = {one["error_type"]: one["tasks"] for one in await db.insights.errors.open_groups()}
    assert groups == {"TimeoutError": 2, "KeyError": 1}

    await db.tasks.retry([held[2][0]])
    async with await Database.open(db.url) as other:  # groups are kept for a moment
        assert [one["error_type"] for one in await other.insights.errors.open_groups()] == ["TimeoutError"]


async def test_the_work_of_each_queue_by_parts_of_the_last_hour(db: Database) -> None:
    await db.execute(
        "INSERT INTO shiftboss.stats (minute, worker_id, queue, task_type, completed, failed, buckets)"
        " SELECT now() - make_interval(mins => m), 'w', 'mail', 't', 5, 1, '{}' FROM unnest('{1,30,90}'::int[]) m"
    )
    series = (await db.insights.series.per_queue(60, 6))["mail"]
    assert (sum(series), series[-1], len(series)) == (12, 6, 6)
