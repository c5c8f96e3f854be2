"""The order of tasks: ageing priorities, weights of tenants, and rates per key and tenant."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from shiftboss.app import App
from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.kit import Kit
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.task import NewTask


async def put(db: Database, task_type: str, waited: float = 0, **terms: Any) -> Any:
    [made] = await db.tasks.enqueue([NewTask(task_type=task_type, **terms)])
    await db.execute(
        "UPDATE tasks SET created_at = created_at - make_interval(secs => %s) WHERE id = %s",
        [waited, made.id],
    )
    return made.id


async def claimed(db: Database, limit: int = 1) -> list[str]:
    return [task.task_type for task in await db.tasks.claim("w", limit)]


async def test_without_ageing_the_priority_decides(db: Database) -> None:
    await put(db, "low", waited=100_000, priority=1)
    await put(db, "high", priority=10)
    assert await claimed(db) == ["high"]


async def test_a_task_that_waits_overtakes(db: Database) -> None:
    await db.fairness.set_ageing(timedelta(minutes=1))
    assert await db.fairness.ageing() == timedelta(minutes=1)
    await put(db, "low", waited=600, priority=1)  # 11 by now
    await put(db, "low", waited=30, priority=1)
    await put(db, "high", priority=10)
    await put(db, "urgent", priority=15)
    await put(db, "middle", waited=130, priority=5)  # 7 by now
    await put(db, "middle", priority=6)
    assert await claimed(db, 10) == ["urgent", "low", "high", "middle", "middle", "low"]


async def test_points_end_at_the_highest_priority_and_limits_hold(db: Database) -> None:
    await db.fairness.set_ageing(timedelta(seconds=1))
    await db.tasks.set_limit("task_type", "low", max_running=1)
    for _ in range(3):
        await put(db, "low", waited=1_000_000, priority=1)
    await put(db, "top", priority=100)
    assert sorted(await claimed(db, 10)) == ["low", "top"]
    assert await claimed(db, 10) == []
    await db.tasks.set_limit("task_type", "low")
    assert await claimed(db, 10) == ["low", "low"]


async def test_a_coordinator_sees_aged_priorities(db: Database) -> None:
    await put(db, "low", waited=600, priority=1)
    query = "SELECT priority FROM shiftboss.waiting(10)"
    assert [row["priority"] for row in await db.fetch(query)] == [1]
    await db.fairness.set_ageing(timedelta(minutes=1))
    assert [row["priority"] for row in await db.fetch(query)] == [11]


async def test_what_cannot_age_is_refused_and_off_is_off(db: Database) -> None:
    with pytest.raises(DatabaseError, match="shorter than a second"):
        await db.fairness.set_ageing(timedelta(0))
    await db.fairness.set_ageing(timedelta(minutes=1))
    await db.fairness.set_ageing(None)
    assert await db.fairness.ageing() is None


async def test_weights_share_the_workers(db: Database) -> None:
    assert await db.fairness.set_tenant_weight("a", 3)
    assert not await db.fairness.set_tenant_weight("a", 3)
    for tenant in ("a", "b"):
        for _ in range(8):
            await put(db, tenant, tenant=tenant)
    assert sorted(await claimed(db, 8)) == ["a"] * 6 + ["b"] * 2
    rows = {row["name"]: (row["weight"], row["set"]) for row in await db.fairness.tenants()}
    assert rows == {"a": (3.0, True), "b": (1.0, False)}
    assert await db.fairness.set_tenant_weight("a", None)
    assert {row["name"]: row["weight"] for row in await db.fairness.tenants()} == {"a": 1.0, "b": 1.0}


async def test_by_command_and_by_api(
    db: Database, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)

    async def cli(*words: str) -> str:
        assert await asyncio.to_thread(main, words) == 0
        return capsys.readouterr().out.strip()

    assert await cli("tenants", "weight", "acme", "3") == "acme has weight 3"
    assert "acme" in await cli("tenants", "list")
    assert await cli("queues", "age", "10m") == "a waiting task gains one point of priority every 10 min"
    assert await cli("queues", "age", "--off") == "priorities do not age"
    assert await cli("tenants", "reset", "acme") == "acme has weight 1"
    assert await cli("queues", "limit", "--type", "t", "--rate", "5", "--each", "tenant") == "t limited"
    assert "for each tenant" in await cli("queues", "limit", "--type", "t")
    actions = [row["action"] for row in await db.tokens.audit()]
    assert set(actions) == {"tenant.weight", "queue.ageing", "task_type.limit"}


async def test_a_rate_for_each_tenant(db: Database) -> None:
    await db.tasks.set_limit("task_type", "mail", rate=2, rate_period=timedelta(hours=1), rate_per="tenant")
    for tenant in ("a", "b", None):
        for _ in range(4):
            await put(db, "mail", tenant=tenant)
    tenants = sorted(str(task.tenant) for task in await db.tasks.claim("w", 100))
    assert tenants == ["None"] * 4 + ["a", "a", "b", "b"]
    assert await db.tasks.claim("w", 100) == []
    row = await db.fetch_one("SELECT id FROM tasks WHERE status = 'Queued' AND tenant = 'a' LIMIT 1")
    assert row is not None
    [why] = [one for one in await db.tasks.why(row["id"]) if one.reason == "limit reached"]
    assert 'is used up by tenant "a"' in why.detail
    assert why.advice.endswith("shiftboss queues limit --type mail --rate 4 --per 3600s --each tenant")


async def test_a_rate_for_each_key_puts_off_what_is_too_much(database_url: str) -> None:
    app = App("calls")
    seen: list[str] = []

    @app.task(rate=2, rate_period=60, rate_per="key", concurrency_key=lambda user, **_: user)
    async def call(user: str, n: int) -> None:
        seen.append(f"{user}{n}")

    async with Kit.open(app, database_url) as kit:
        await kit.freeze()
        for n in range(5):
            await call.enqueue("a", n)
        await call.enqueue("b", 0)
        await kit.drain()
        assert sorted(seen) == ["a0", "a1", "b0"]
        [late, *_] = await kit.db.fetch("SELECT id FROM tasks WHERE status = 'Queued' ORDER BY run_at")
        [why] = [one for one in await kit.db.tasks.why(late["id"]) if one.reason == "limit reached"]
        assert 'the rate of the key "a" is used up' in why.detail
        assert "--rate 4 --per 60s --each key" in why.advice
        await kit.move(seconds=31)
        await kit.drain()
        assert sorted(seen) == ["a0", "a1", "a2", "b0"]
        await kit.move(seconds=61)
        await kit.drain()
        assert sorted(seen) == ["a0", "a1", "a2", "a3", "a4", "b0"]


async def test_limits_per_key_and_rates_per_key_together(db: Database) -> None:
    await db.tasks.set_limit(
        "task_type", "t", max_per_key=1, rate=3, rate_period=timedelta(hours=1), rate_per="key"
    )
    for _ in range(5):
        await put(db, "t", concurrency_key="k")
    rounds = []
    for _ in range(5):
        tasks = await db.tasks.claim("w", 10)
        rounds.append(len(tasks))
        await db.tasks.complete([(task.id, task.lease) for task in tasks], [None] * len(tasks))
    assert rounds == [1, 1, 1, 0, 0]
    await db.tasks.set_limit("task_type", "t")
    buckets = await db.fetch("SELECT * FROM shiftboss.rate_buckets")
    assert buckets == []


def test_a_rate_per_key_needs_a_key() -> None:
    app = App("bad")
    with pytest.raises(UsageError, match="needs a concurrency_key"):
        app.task(rate=1, rate_per="key")(lambda: None)
    with pytest.raises(UsageError, match="does not work with"):
        app.task(rate_per="tenant")(lambda: None)
