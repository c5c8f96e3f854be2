"""/metrics: what it adds up, what it leaves out, and what a scrape costs."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shiftboss.db import Database
from shiftboss.extensions.admin.metrics import metrics
from shiftboss.leader.election import leadership
from shiftboss.leader.pruner import Pruner
from shiftboss.model.task import BUCKETS, NewTask
from shiftboss.model.worker import Member

WORK = {"queue": "q", "task_type": "t", "completed": 2, "failed": 1, "seconds": 3.5, "buckets": [3]}


async def scraped(db: Database) -> dict[Any, float]:
    """Samples by name, then by name and labels."""
    families = list(text_string_to_metric_families((await metrics(db)).decode()))
    assert len({family.name for family in families}) == len(families)
    return {
        (s.name, *(s.labels[name] for name in sorted(s.labels))) if s.labels else s.name: s.value
        for family in families
        for s in family.samples
    }


async def test_metrics_of_departed_workers_go_away(db: Database) -> None:
    for name in ("stays", "leaves", 'odd"\\\n'):
        await db.workers.register(Member(id=name))
        await db.workers.beat(name, [], {}, [WORK])
    await db.workers.leave("leaves")
    samples = await scraped(db)
    assert samples["worker_tasks_processed_total", "failed", "t", "leaves"] == 1, "the last scrape sees them"
    assert samples["worker_tasks_processed_total", "completed", "t", 'odd"\\\n'] == 2
    await db.execute("UPDATE shiftboss.work_totals SET at = at - interval '6 minutes'")
    samples = await scraped(db)
    assert ("worker_tasks_processed_total", "failed", "t", "leaves") not in samples
    assert samples["worker_tasks_processed_total", "failed", "t", "stays"] == 1
    await db.execute("UPDATE shiftboss.work_totals SET at = at - interval '1 hour'")
    await db.tasks.tidy(timedelta(days=7))
    left = await db.fetch("SELECT DISTINCT worker_id FROM shiftboss.work_totals ORDER BY 1")
    assert [row["worker_id"] for row in left] == ['odd"\\\n', "stays"]


async def test_labels_are_bounded(db: Database) -> None:
    await db.execute(
        "INSERT INTO shiftboss.work_totals SELECT 'w' || n, 't', n, 0, n, ARRAY[n], now()"
        " FROM generate_series(1, 2100) n"
    )
    samples = await scraped(db)
    workers = {key[-1] for key in samples if key[0] == "worker_tasks_processed_total"}
    assert len(workers) == 2001
    assert samples["worker_tasks_processed_total", "completed", "other", "other"] == sum(range(1, 101))
    assert samples["worker_processing_duration_seconds_count", "other", "other"] == sum(range(1, 101))


async def test_lost_leases_stale_reports_and_leader_changes(db: Database) -> None:
    before = await scraped(db)
    assert (before["leader_present"], before["leader_changes_total"]) == (0, 0)
    await db.workers.register(Member(id="w"))
    await db.tasks.enqueue([NewTask(task_type="t")])
    [task] = await db.tasks.claim("w", 1)
    await db.fetch("SELECT shiftboss.lose_worker(ARRAY['w'])")
    assert await db.tasks.complete([(task.id, task.lease)], [None]) == [task.id]
    lease = leadership(db, 30)
    assert await lease.acquire()
    try:
        for _ in range(2):
            samples = await scraped(db)
            assert samples["lost_leases_total"] == 1
            assert samples["stale_reports_total"] == 1
            assert (samples["leader_present"], samples["leader_changes_total"]) == (1, 1)
            await Pruner(db).fold()
    finally:
        await lease.release()


async def test_ai_calls_and_vectorizers(db: Database) -> None:
    await db.execute(
        "INSERT INTO shiftboss.ai_providers (provider, circuit, opened_at, daily_budget)"
        " VALUES ('openai', 'open', now(), 10), ('local', 'closed', NULL, NULL)"
    )
    for day in (0, 1):
        await db.execute(
            "SELECT shiftboss.ai_add_spend('openai', 3, 1, 100, 20, 4, shiftboss.ai_today() - %s)", [day]
        )
    await db.execute("INSERT INTO shiftboss.ai_cache_use VALUES (shiftboss.ai_today(), 't', 5, 2, 0)")
    await db.execute("CREATE TABLE memos (id int PRIMARY KEY, body text)")
    await db.vectorizers.create("memos", columns=["body"], name="embedded", dimensions=8)
    await db.execute("INSERT INTO memos VALUES (1, 'a'), (2, 'b')")
    samples = await scraped(db)
    assert samples["ai_calls_total", "openai"] == 6
    assert samples["ai_tokens_total", "completion", "openai"] == 40
    assert samples["ai_cost_dollars_total", "openai"] == 8
    assert samples["ai_circuit_state", "openai"] == 2
    assert samples["ai_circuit_state", "local"] == 0
    assert samples["ai_budget_left_dollars", "openai"] == 6
    assert ("ai_budget_left_dollars", "local") not in samples
    assert (samples["ai_cache_hits_total"], samples["ai_cache_misses_total"]) == (5, 2)
    assert samples["vectorizer_pending", "embedded"] == 2
    assert samples["vectorizer_lag_seconds", "embedded"] >= 0


@pytest.fixture
async def busy(db: Database) -> Database:
    """1,000 workers, 200,000 waiting tasks and as many finished ones."""
    await db.execute(
        "INSERT INTO workers (id, instance_type, status, last_heartbeat)"
        " SELECT 'w' || n, 'process', 'active', now() FROM generate_series(1, 1000) n"
    )
    buckets = [7] * (len(BUCKETS) + 1)
    await db.execute(
        "INSERT INTO shiftboss.work_totals SELECT 'w' || n, 'resize', 90, 10, 55.5, %s::bigint[], now()"
        " FROM generate_series(1, 1000) n",
        [buckets],
    )
    await db.execute(
        "INSERT INTO tasks (task_type, queue, status, generation_processed_at)"
        " SELECT 'resize', 'q' || n %% 10, s, CASE WHEN s = 'Complete' THEN now() END"
        " FROM generate_series(1, 200000) n, unnest(ARRAY['Queued', 'Complete']) s",
        [],
    )
    await db.execute("SELECT shiftboss.fold_tallies()")
    await db.execute("VACUUM ANALYZE tasks")
    return db


@pytest.mark.serial
async def test_a_scrape_is_quick_beside_a_thousand_workers_and_any_backlog(busy: Database) -> None:
    await Pruner(busy).fold()
    samples = await scraped(busy)
    assert samples["task_queue_depth"] == 200_000
    assert samples["queue_depth", "q3"] == 20_000
    took = []
    for _ in range(20):
        began = time.perf_counter()
        await metrics(busy)
        took.append(time.perf_counter() - began)
    assert min(took) < 0.05, took


async def test_short_queues_are_counted_at_once(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t", queue="mail") for _ in range(3)])
    samples = await scraped(db)
    assert (samples["task_queue_depth"], samples["queue_depth", "mail"]) == (3, 3)
    assert samples["queue_oldest_seconds", "mail"] >= 0
