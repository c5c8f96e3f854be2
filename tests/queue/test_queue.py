"""The queue's functions: dedup, dependencies, limits, pauses, cancels, retries, and errors."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.db.callers import enqueue_sync
from shiftboss.model.errors import DatabaseError, ShiftbossError, UsageError
from shiftboss.model.task import NewTask, new_id


async def enqueue(db: Database, **terms: Any) -> UUID:
    [made] = await db.tasks.enqueue([NewTask(**({"task_type": "t"} | terms))])
    return made.id


async def status(db: Database, *ids: UUID) -> list[str]:
    rows = {row["id"]: row["status"] for row in await db.fetch("SELECT id, status FROM tasks")}
    return [rows[id] for id in ids]


async def finish(db: Database, *tasks: Any) -> list[UUID]:
    return await db.tasks.complete([(task.id, task.lease) for task in tasks], [None] * len(tasks))


async def test_a_dedup_key_is_unique_among_live_tasks(db: Database) -> None:
    first, second = await db.tasks.enqueue([NewTask(task_type="t", dedup_key="k")] * 2)
    assert first.id == second.id
    assert (first.created, second.created) == (True, False)
    again = await asyncio.gather(
        *(db.tasks.enqueue([NewTask(task_type="t", dedup_key="k")]) for _ in range(8))
    )
    assert {made.id for [made] in again} == {first.id}
    await finish(db, *await db.tasks.claim("w"))
    [new] = await db.tasks.enqueue([NewTask(task_type="t", dedup_key="k")])
    assert new.created


async def test_eight_clients_at_once_make_one_task_for_a_key(db: Database) -> None:
    made = await asyncio.gather(
        *(db.tasks.enqueue([NewTask(task_type="t", dedup_key="new")]) for _ in range(8))
    )
    assert sum(one.created for [one] in made) == 1
    assert len({one.id for [one] in made}) == 1


async def test_enqueue_in_the_callers_transaction(db: Database, database_url: str) -> None:
    with pytest.raises(RuntimeError):
        async with db.transaction() as conn:
            await db.tasks.enqueue([NewTask(task_type="t")], conn)
            raise RuntimeError
    with psycopg.connect(database_url) as sync:
        enqueue_sync([NewTask(task_type="kept")], sync)
        assert await db.tasks.claim("w", 10) == []
    assert [task.task_type for task in await db.tasks.claim("w", 10)] == ["kept"]


async def test_a_graph_goes_in_with_one_call_and_runs_in_order(db: Database) -> None:
    a, b, c, d = (new_id() for _ in range(4))
    graph = [
        NewTask(task_type="d", id=d, depends_on=[b, c]),
        NewTask(task_type="b", id=b, depends_on=[a]),
        NewTask(task_type="c", id=c, depends_on=[a]),
        NewTask(task_type="a", id=a),
    ]
    await db.tasks.enqueue(graph)
    [task] = await db.tasks.claim("w", 10)
    assert task.task_type == "a"
    [reason] = await db.tasks.why(b)
    assert (reason.reason, str(a) in reason.detail) == ("dependency", True)
    await finish(db, task)
    both = await db.tasks.claim("w", 10)
    assert {t.task_type for t in both} == {"b", "c"}
    await asyncio.gather(*(finish(db, t) for t in both))
    assert [t.task_type for t in await db.tasks.claim("w", 10)] == ["d"]


async def test_two_parents_that_end_at_once_free_their_child(db: Database) -> None:
    for _ in range(20):
        parents = await db.tasks.enqueue([NewTask(task_type="p"), NewTask(task_type="p")])
        child = await enqueue(db, depends_on=[made.id for made in parents])
        held = [await db.tasks.claim("w", 1), await db.tasks.claim("w", 1)]
        await asyncio.gather(*(finish(db, *one) for one in held))
        [task] = await db.tasks.claim("w", 10)
        assert task.id == child
        await finish(db, task)


@pytest.mark.parametrize(
    ("policy", "end"), [(None, "Cancelled"), ("cancel", "Cancelled"), ("fail", "Failed"), ("run", "Queued")]
)
async def test_what_becomes_of_a_child_whose_parent_fails(db: Database, policy: Any, end: str) -> None:
    parent = await enqueue(db, max_attempts=1)
    child = await enqueue(db, depends_on=[parent], on_dependency_failure=policy)
    grandchild = await enqueue(db, depends_on=[child])
    [task] = await db.tasks.claim("w", 10)
    await db.tasks.fail([(task.id, task.lease)], ["boom"])
    assert await status(db, parent, child) == ["Failed", end]
    late = await enqueue(db, depends_on=[parent], on_dependency_failure=policy)
    assert await status(db, late) == [end]
    if end == "Queued":
        assert {t.id for t in await db.tasks.claim("w", 10)} == {child, late}
    else:
        assert await status(db, grandchild) == ["Cancelled"]


async def test_a_cycle_or_an_unknown_parent_is_refused_and_changes_nothing(db: Database) -> None:
    a, b = new_id(), new_id()
    with pytest.raises(UsageError, match="cycle"):
        await db.tasks.enqueue(
            [NewTask(task_type="t", id=a, depends_on=[b]), NewTask(task_type="t", id=b, depends_on=[a])]
        )
    with pytest.raises(DatabaseError, match="does not exist"):
        await db.tasks.enqueue([NewTask(task_type="t"), NewTask(task_type="t", depends_on=[uuid4()])])
    with pytest.raises(DatabaseError, match="does not exist"):
        await db.execute("INSERT INTO tasks (id, task_type, depends_on) VALUES (%s, 't', %s)", [a, [a]])
    assert await db.tasks.claim("w", 10) == []


async def test_limits_hold_for_many_claimers_at_once(db: Database) -> None:
    await db.tasks.set_limit("task_type", "t", max_running=5, max_per_key=2)
    keys = ["a", "b", "c", "d"]
    await db.tasks.enqueue([NewTask(task_type="t", concurrency_key=keys[n % 4]) for n in range(80)])
    done = 0
    for _ in range(200):
        batches = await asyncio.gather(*(db.tasks.claim(f"w{n}", 3) for n in range(6)))
        rows = await db.fetch(
            "SELECT concurrency_key AS k, count(*) AS n FROM tasks WHERE status = 'In Progress' GROUP BY 1"
        )
        assert sum(row["n"] for row in rows) <= 5
        assert all(row["n"] <= 2 for row in rows)
        await asyncio.gather(*(finish(db, *batch) for batch in batches if batch))
        done += sum(map(len, batches))
        if done == 80:
            break
    assert done == 80


async def test_a_rate_limit_spends_its_tokens_and_refills(db: Database, database_url: str) -> None:
    await db.tasks.set_limit("queue", "slow", rate=3, rate_period=timedelta(minutes=1))
    ids = [
        made.id for made in await db.tasks.enqueue([NewTask(task_type="t", queue="slow") for _ in range(6)])
    ]
    assert len(await db.tasks.claim("w", 10)) == 3
    [reason] = await db.tasks.why(ids[-1])
    assert reason.reason == "limit reached"
    async with db.transaction() as conn:
        later = (datetime.now(UTC) + timedelta(seconds=21)).isoformat()
        await conn.execute("SELECT set_config('shiftboss.now', %s, true)", [later])
        rows = await (await conn.execute("SELECT * FROM shiftboss.claim('w', 10)")).fetchall()
    assert len(rows) == 1


async def test_pause_and_resume_of_a_queue_and_a_type(db: Database) -> None:
    id = await enqueue(db, queue="q")
    for kind, name in (("queue", "q"), ("task_type", "t")):
        assert await db.tasks.pause(kind, name, "maintenance")
        assert not await db.tasks.pause(kind, name)
        assert await db.tasks.claim("w") == []
        assert any(r.reason == "paused" and "maintenance" in r.detail for r in await db.tasks.why(id))
        assert await db.tasks.resume(kind, name)
    assert len(await db.tasks.claim("w")) == 1


async def test_one_big_tenant_does_not_starve_the_rest(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t", tenant="big") for _ in range(100)])
    await db.tasks.enqueue([NewTask(task_type="t", tenant="small") for _ in range(5)])
    assert [t.tenant for t in await db.tasks.claim("w", 10)].count("small") == 5


async def test_what_a_worker_can_not_do_is_not_in_its_way(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="gpu", requires={"gpu": True}) for _ in range(50)])
    wanted = await enqueue(db, requires={"ai_provider": "openai", "features": ["voice"]})
    await db.execute(
        "SELECT shiftboss.register('w', p_capabilities => %s)",
        [{"task_types": ["t", "gpu"], "ai_providers": ["openai"], "specialized_features": ["voice", "x"]}],
    )
    assert [t.id for t in await db.tasks.claim("w", 10)] == [wanted]
    gpu = await db.fetch_one("SELECT id FROM tasks WHERE task_type = 'gpu' LIMIT 1")
    assert gpu is not None
    [reason] = await db.tasks.why(gpu["id"])
    assert reason.reason == "no capable worker"


async def test_a_worker_that_talks_nonsense_gets_only_what_anybody_may_have(db: Database) -> None:
    await db.execute(
        """SELECT shiftboss.register('odd', p_capabilities => '{"ai_providers": 7, "specialized_features": "all"}',
                                     p_resource_limits => '{"gpu_available": "yes", "memory_gb": "lots"}')"""
    )
    for requires in ({"gpu": True}, {"memory_gb": 8}, {"ai_provider": "openai"}, {"features": ["voice"]}):
        await enqueue(db, requires=requires)
    plain = await enqueue(db)
    assert [task.id for task in await db.tasks.claim("odd", 10)] == [plain]


async def test_history_dead_letters_retry_and_prune(db: Database) -> None:
    id = await enqueue(db, max_attempts=1)
    [task] = await db.tasks.claim("w")
    await db.tasks.fail([(task.id, task.lease)], ["boom"])
    assert await db.tasks.retry([id]) == [id]
    assert await db.tasks.retry([id]) == []
    await finish(db, *await db.tasks.claim("w2"))
    assert [a["outcome"] for a in await db.tasks.attempts(id)] == ["failed", "complete"]
    assert await db.tasks.prune(timedelta(hours=1)) == 0
    assert await db.tasks.prune(timedelta(0)) == 1
    assert await db.tasks.get(id) is None


async def test_a_retried_child_waits_again_for_a_parent_that_has_not_ended(db: Database) -> None:
    parent = await enqueue(db)
    child = await enqueue(db, depends_on=[parent])
    await db.tasks.cancel([child])
    assert await db.tasks.retry([child]) == [child]
    [task] = await db.tasks.claim("w", 10)
    assert task.id == parent
    await finish(db, task)
    assert [t.id for t in await db.tasks.claim("w", 10)] == [child]


async def test_a_lease_of_its_own_outlives_the_worker_and_runs_out(db: Database) -> None:
    id = await enqueue(db)
    [task] = await db.tasks.claim("w", lease=timedelta(minutes=10))
    for minutes, expected in ((6, "In Progress"), (11, "Queued")):
        async with db.transaction() as conn:
            later = (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()
            await conn.execute("SELECT set_config('shiftboss.now', %s, true)", [later])
            await conn.execute("SELECT * FROM shiftboss.rescue()")
        assert await status(db, id) == [expected]
    assert await finish(db, task) == [id], "the stale lease is reported as such"


async def test_a_repeated_report_is_not_stale(db: Database) -> None:
    await enqueue(db)
    [task] = await db.tasks.claim("w")
    assert await finish(db, task) == []
    assert await finish(db, task) == []


async def test_a_claim_whose_answer_was_lost_goes_back(db: Database) -> None:
    id = await enqueue(db)
    await db.tasks.claim("w")
    async with db.transaction() as conn:
        later = (datetime.now(UTC) + timedelta(seconds=20)).isoformat()
        await conn.execute("SELECT set_config('shiftboss.now', %s, true)", [later])
        await conn.execute("SELECT * FROM shiftboss.beat('w', '{}'::bigint[])")
    row = await db.tasks.get(id)
    assert row is not None
    assert (row["status"], row["attempts"]) == ("Queued", 0)


async def test_origin_sets_the_documented_priority(db: Database) -> None:
    origins = {"real_time_analysis": 15, "user_requested": 10, "batch_processing": 5, "background_cleanup": 1}
    for origin in origins:
        await enqueue(db, origin=origin)
    rows = await db.fetch("SELECT origin, priority FROM tasks")
    assert {row["origin"]: row["priority"] for row in rows} == origins


@pytest.mark.parametrize(
    ("terms", "word"),
    [
        ({"priority": 101}, "out of range"),
        ({"priority": -1}, "out of range"),
        ({"run_at": datetime(2999, 1, 1, tzinfo=UTC)}, "between 2000 and 2200"),
        ({"run_at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
        ({"params": {"x": object()}}, "not JSON"),
        ({"params": {"x": "a\x00b"}}, "NUL"),
        ({"params": {"x": "y" * 2_000_000}}, "limit"),
        ({"task_type": ""}, "task_type"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"requires": {"cpus": 4}}, "cpus"),
        ({"requires": {"memory_gb": "8"}}, "number"),
        ({"requires": {"gpu": 1}}, "boolean"),
        ({"timeout": timedelta(seconds=-1)}, "timeout"),
    ],
)
async def test_bad_input_is_refused_in_words_that_help(
    db: Database, terms: dict[str, Any], word: str
) -> None:
    with pytest.raises(ShiftbossError, match=word):
        await enqueue(db, **terms)
    assert await db.fetch("SELECT FROM tasks") == []


@pytest.mark.parametrize("payload", ['{"task_type": "t"}', '[{"task_type": "t", "prio": 3}]', "[{}]"])
async def test_bad_json_is_refused_by_sql_as_well(db: Database, payload: str) -> None:
    with pytest.raises(DatabaseError):
        await db.fetch("SELECT * FROM shiftboss.enqueue(%s)", [payload])
    assert await db.fetch("SELECT FROM tasks") == []


@pytest.mark.parametrize("limit", [500, 20_000, 2_000_000])
async def test_the_payload_limit_can_be_set(db: Database, limit: int) -> None:
    await db.tasks.set_payload_limit(limit)
    small, large = {"x": "y" * (limit - 100)}, {"x": "y" * (limit + 1)}
    await enqueue(db, params=small)
    with pytest.raises(DatabaseError, match="the limit of"):
        await enqueue(db, params=large)
    with pytest.raises(DatabaseError, match="the limit of"):
        await db.execute("INSERT INTO tasks (task_type, params) VALUES ('t', %s)", [large])
    await db.execute("UPDATE shiftboss.settings SET value = 5000000 WHERE key = 'max_payload_bytes'")
    await enqueue(db, params=large)
    with pytest.raises(DatabaseError, match="too small"):
        await db.tasks.set_payload_limit(0)


async def test_copy_takes_every_plain_term_and_refuses_the_rest(db: Database) -> None:
    terms: dict[str, Any] = {
        "queue": "q", "priority": 9, "tenant": "me", "deadline": datetime(2150, 1, 1, tzinfo=UTC),
        "timeout": timedelta(seconds=7), "concurrency_key": "k", "max_attempts": 8, "backoff": timedelta(seconds=2),
        "backoff_factor": 1.5, "backoff_max": timedelta(minutes=1), "requires": {"gpu": True}, "region": "eu",
        "metadata": {"a": 1}, "run_at": datetime(2140, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    assert await db.tasks.copy([NewTask(task_type="plain"), NewTask(task_type="full", **terms)]) == 2
    rows = {row["task_type"]: row for row in await db.fetch("SELECT * FROM tasks")}
    assert {name: rows["full"][name] for name in terms} == terms
    assert (rows["plain"]["queue"], rows["plain"]["priority"], rows["plain"]["max_attempts"]) == (
        "default",
        5,
        3,
    )
    for name, value in {
        "dedup_key": "k",
        "depends_on": [new_id()],
        "delay": timedelta(1),
        "priority": 101,
    }.items():
        with pytest.raises(UsageError, match=name):
            await db.tasks.copy([NewTask(task_type="t"), NewTask(task_type="t", **{name: value})])
    assert len(await db.fetch("SELECT FROM tasks")) == 2
