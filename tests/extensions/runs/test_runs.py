"""Runs: valid transitions, bounded progress, and a run that ends with its task in every case."""

from __future__ import annotations

import asyncio
import random
import time
from uuid import UUID, uuid4

import pytest
from tests.app.test_encryption import SECRET, dump, keys

from shiftboss.db import Database
from shiftboss.model.codec import new_key
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import Claimed
from shiftboss.model.worker import Member


async def started(db: Database, bot: str = "discovery") -> UUID:
    return (await db.runs.start_run(bot, "rotterdam", "bakery", {"limit": 5}, requested_by="ann")).id


async def claimed(db: Database, worker: str = "w1") -> Claimed:
    await db.workers.register(Member(id=worker))
    (task,) = await db.tasks.claim(worker)
    return task


async def run_of(db: Database, id: UUID) -> dict:
    row = await db.runs.get(id)
    assert row is not None
    return row


async def test_a_run_is_carried_out_as_a_task(db: Database) -> None:
    id = await started(db)
    assert (await run_of(db, id))["status"] == "pending"
    task = await claimed(db)
    assert (task.task_type, task.run_id) == ("bot.discovery", id)
    assert task.params == {"limit": 5, "city": "rotterdam", "category": "bakery"}
    run = await run_of(db, id)
    assert run["status"] == "running"
    assert run["started_at"] is not None
    assert await db.runs.report_run(id, task.lease, 40, {"inserted": 3}, {"after": "n/3"}, "reading")
    await db.tasks.complete([(task.id, task.lease)], [b'{"counters": {"moved": 1}}'])
    run = await run_of(db, id)
    assert (run["status"], run["progress"], run["counters"]) == ("finished", 100, {"inserted": 3, "moved": 1})
    assert run["finished_at"] >= run["started_at"]


async def test_a_lost_worker_fails_the_run_and_keeps_the_percentage(db: Database) -> None:
    id = await started(db)
    task = await claimed(db)
    await db.runs.report_run(id, task.lease, 37)
    await db.workers.lose_worker(["w1"], "crashed", "killed by signal 9")
    run = await run_of(db, id)
    assert (run["status"], run["progress"], run["error_message"]) == ("failed", 37, "killed by signal 9")
    assert not await db.runs.report_run(id, task.lease, 90), "a late report is told that it is stale"
    assert (await run_of(db, id))["progress"] == 37


async def test_progress_under_concurrent_late_reports(db: Database) -> None:
    id = await started(db)
    task = await claimed(db)
    seen: list[int] = []

    async def report(percent: int) -> None:
        await db.runs.report_run(id, task.lease, percent)
        seen.append((await run_of(db, id))["progress"])

    percents = [*range(-10, 130, 2)]
    random.shuffle(percents)
    await asyncio.gather(*map(report, percents))
    assert max(seen) == 99
    history = [(await run_of(db, id))["progress"] for _ in range(3)]
    assert history == [99, 99, 99]
    await db.tasks.complete([(task.id, task.lease)], [None])
    assert (await run_of(db, id))["progress"] == 100


async def test_progress_never_goes_down(db: Database) -> None:
    id = await started(db)
    task = await claimed(db)
    shown = []
    for percent in (5, 60, 30, -4, 61, 1000, 2):
        await db.runs.report_run(id, task.lease, percent)
        shown.append((await run_of(db, id))["progress"])
    assert shown == [5, 60, 60, 60, 61, 99, 99]


async def test_progress_of_the_task_reaches_the_run(db: Database) -> None:
    id = await started(db)
    task = await claimed(db)
    await db.tasks.progress([(task.id, task.lease)], [55], ["half way"])
    run = await run_of(db, id)
    assert (run["progress"], run["message"]) == (55, "half way")


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ([], "finished"),
        (["running"], "pending"),
        (["running", "finished"], "running"),
        (["running", "failed"], "finished"),
        (["failed"], "running"),
    ],
)
async def test_only_documented_transitions_by_any_client(db: Database, path: list[str], refused: str) -> None:
    id = uuid4()
    await db.execute("INSERT INTO worker_runs (id, bot) VALUES (%s, 'verify')", [id])
    for status in path:
        await db.execute("UPDATE worker_runs SET status = %s WHERE id = %s", [status, id])
    with pytest.raises(DatabaseError, match="cannot become"):
        await db.execute("UPDATE worker_runs SET status = %s WHERE id = %s", [refused, id])


async def test_two_operators_start_the_same_run(db: Database) -> None:
    runs = await asyncio.gather(
        *(db.runs.start_run("verify", "delft", None, {"limit": 9}, requested_by=name) for name in "abcdefgh")
    )
    assert len({run.id for run in runs}) == 1
    assert [run.created for run in runs].count(True) == 1
    assert await db.runs.count_runs() == 1
    assert (await db.fetch_one("SELECT count(*) AS n FROM tasks"))["n"] == 1  # type: ignore[index]


async def test_cancel_while_it_waits_and_while_it_runs(db: Database) -> None:
    waiting = await started(db)
    await db.runs.cancel_run(waiting, "not now")
    assert (await run_of(db, waiting))["error_message"] == "cancelled: not now"
    running = await started(db)
    task = await claimed(db)
    await db.runs.report_run(running, task.lease, 12)
    await db.runs.cancel_run(running, "by ann")
    assert (await run_of(db, running))["status"] == "running", "its worker has to stop first"
    orders = await db.workers.beat("w1", [task.lease])
    assert list(orders.cancel) == [task.lease]
    await db.tasks.cancelled([(task.id, task.lease)])
    run = await run_of(db, running)
    assert (run["status"], run["progress"], run["error_message"]) == ("failed", 12, "cancelled: by ann")
    with pytest.raises(DatabaseError, match="already ended"):
        await db.runs.cancel_run(running)


async def test_retry_is_a_new_run_that_goes_on_where_the_old_one_stopped(db: Database) -> None:
    old = await started(db)
    with pytest.raises(DatabaseError, match="still pending"):
        await db.runs.retry_run(old)
    task = await claimed(db)
    await db.runs.report_run(old, task.lease, 50, {"inserted": 7}, {"after": "node/7"})
    await db.tasks.fail([(task.id, task.lease)], ["the source went away"])
    new = await db.runs.retry_run(old, requested_by="bob")
    run = await run_of(db, new.id)
    assert (run["retry_of"], run["status"], run["progress"], run["counters"]) == (old, "pending", 0, {})
    assert await db.runs.kept(new.id) == {"checkpoint": {"after": "node/7"}, "counters": {}}
    assert (await run_of(db, old))["error_message"] == "the source went away"
    with pytest.raises(DatabaseError, match="which has ended"):
        await db.tasks.retry([task.id])


async def test_a_deferred_task_leaves_its_run_running(db: Database) -> None:
    id = await started(db)
    task = await claimed(db)
    await db.runs.report_run(id, task.lease, 20)
    await db.workers.leave("w1")
    assert (await run_of(db, id))["status"] == "running"
    again = await claimed(db, "w2")
    assert again.run_id == id
    assert not await db.runs.report_run(id, task.lease, 99), "the first holder is stale"
    assert await db.runs.report_run(id, again.lease, 30)


async def test_a_missing_run_says_so(db: Database) -> None:
    with pytest.raises(DatabaseError, match="there is no run"):
        await db.runs.cancel_run(uuid4())
    assert await db.runs.get(uuid4()) is None


@pytest.mark.serial
async def test_ten_thousand_runs_list_quickly(db: Database) -> None:
    await db.execute(
        "INSERT INTO worker_runs (bot, status, params, created_at)"
        " SELECT (ARRAY['discovery', 'verify'])[1 + n % 2],"
        " CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'finished' END,"
        " jsonb_build_object('n', n), now() - n * interval '1 minute' FROM generate_series(1, 10000) n"
    )
    await db.execute("ANALYZE worker_runs")
    began = time.perf_counter()
    for offset in (0, 5000, 9950):
        assert len(await db.runs.list_runs(limit=50, offset=offset)) == 50
        assert len(await db.runs.list_runs(bot="discovery", status="failed", limit=50)) == 50
        assert await db.runs.count_runs(status="failed") == 1000
    assert time.perf_counter() - began < 0.5


async def test_encrypted_runs(db: Database) -> None:
    with keys(new_key()):
        first = await db.runs.start_run("discovery", params={"source": SECRET, "limit": 5})
        same = await db.runs.start_run("discovery", params={"limit": 5, "source": SECRET})
        assert (same.id, same.created) == (first.id, False), "SQL recognises the same job"
        await db.runs.amend_run(first.id, "rotterdam", None, {"limit": 7, "more": SECRET})
        task = await claimed(db)
        assert task.params == {"source": SECRET, "limit": 5, "more": SECRET, "city": "rotterdam"}
        await db.runs.report_run(first.id, task.lease, 40, {"inserted": 3}, {"after": SECRET}, f"at {SECRET}")
        run = await run_of(db, first.id)
        assert (run["message"], run["counters"]) == (f"at {SECRET}", {"inserted": 3})
        assert (await db.runs.kept(first.id))["checkpoint"] == {"after": SECRET}
        await db.tasks.fail([(task.id, task.lease)], [f"ValueError: {SECRET}"], retry=[False])
        retried = await db.runs.retry_run(first.id)
        assert (await db.runs.kept(retried.id))["checkpoint"] == {"after": SECRET}
        await db.runs.cancel_run(retried.id, f"because of {SECRET}")
        assert (await run_of(db, retried.id))["error_message"] == f"cancelled: because of {SECRET}"
        assert (await claimed_params(db, retried.id)) == task.params
    assert dump(db.url).count(SECRET) == 0


async def claimed_params(db: Database, run: UUID) -> dict:
    row = await db.fetch_one("SELECT params FROM tasks WHERE run_id = %s", [run])
    assert row is not None
    return row["params"]
