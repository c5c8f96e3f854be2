"""Suspended tasks and the rest of the fleet: cancelling their children, and counting them apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from shiftboss import Context
from shiftboss.app import App
from shiftboss.kit import Kit
from shiftboss.model.worker import Member


@pytest.fixture
def app() -> App:
    return App("waits")


@pytest.fixture
async def kit(app: App, database_url: str) -> AsyncIterator[Kit]:
    async with Kit.open(app, database_url) as kit:
        yield kit


async def test_children_of_a_cancelled_task_are_cancelled_too(app: App, kit: Kit) -> None:
    @app.task()
    async def leaf(n: int) -> int:
        return n

    @app.task()
    async def branch(ctx: Context, n: int) -> int:
        return await ctx.run(leaf.options(delay=3600).call(n))

    @app.task()
    async def root(ctx: Context) -> list[Any]:
        shared = leaf.options(delay=3600, dedup_key="shared").call(3)
        return await ctx.gather(branch.call(1), branch.call(2), shared)

    shared = await leaf.options(delay=3600, dedup_key="shared").enqueue(3)
    cancelled, other = await root.enqueue(), await root.enqueue()
    await kit.drain()
    await kit.db.tasks.cancel([cancelled.id], "no longer wanted")
    rows = await kit.db.fetch(
        "SELECT task_type, status, count(*) AS n FROM tasks GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert [(row["task_type"].split(".")[1], row["status"], row["n"]) for row in rows] == [
        ("branch", "Cancelled", 2),
        ("branch", "Queued", 2),
        ("leaf", "Cancelled", 2),
        ("leaf", "Queued", 3),
        ("root", "Cancelled", 1),
        ("root", "Queued", 1),
    ]
    assert (await shared.look())["status"] == "Queued", "it was there before, and the other root waits for it"
    assert (await cancelled.look())["error_message"] == "no longer wanted"
    await kit.db.tasks.cancel([other.id])
    live = await kit.db.fetch("SELECT id FROM tasks WHERE status = 'Queued'")
    assert [row["id"] for row in live] == [shared.id]


async def test_a_running_child_of_a_cancelled_task_is_asked_to_stop(app: App, kit: Kit) -> None:
    @app.task()
    async def slow() -> None: ...

    @app.task()
    async def parent(ctx: Context) -> None:
        await ctx.run(slow.call())

    handle = await parent.enqueue()
    for _ in range(2):  # the parent is suspended, then the child is claimed by hand
        await kit.db.workers.register(Member(id="w"))
        (task,) = await kit.db.tasks.claim("w", 1)
        if task.task_type.endswith("parent"):
            new = {"task_type": "waits.slow", "params": {}}
            wait = {"kind": "child", "name": "slow", "ordinal": 1, "task": new}
            await kit.db.steps.suspend([(task.id, task.lease)], [[wait]])
    await kit.db.tasks.cancel([handle.id])
    child = await kit.db.tasks.get(task.id)
    assert child is not None
    assert (child["status"], child["cancel_requested_at"] is not None) == ("In Progress", True)


async def test_suspended_tasks_are_no_backlog(app: App, kit: Kit) -> None:
    @app.task()
    async def rest(ctx: Context) -> None:
        await ctx.sleep("rest", timedelta(days=1))

    await kit.freeze()
    for _ in range(3):
        await rest.enqueue()
    await kit.drain()
    await kit.move(hours=1)
    await rest.options(delay=0).enqueue()
    counts = await kit.db.insights.overview.counts(fresh=True)
    assert (counts["queued_tasks"], counts["suspended_tasks"]) == (4, 3)
    for find in (kit.db.insights.fleet.queues, kit.db.insights.fleet.depths):
        (queue,) = await find(fresh=True)
        assert (queue["queued"], queue["ready"], queue["oldest_seconds"] < 60) == (1, 1, True)
    assert (await kit.db.insights.overview.snapshot())["queue"]["oldest_seconds"] < 60
    load = await kit.db.autoscale.load()
    assert (load["depth"], load["oldest_seconds"] < 60) == (1, True)
    (kind,) = await kit.db.fetch("SELECT * FROM task_queue_analysis")
    assert (kind["queued_count"], kind["max_queue_time_seconds"] < 60) == (4, True)


async def test_children_have_the_tenant_of_their_parent(app: App, kit: Kit) -> None:
    @app.task()
    async def leaf(ctx: Context) -> str | None:
        return ctx.tenant

    @app.task()
    async def root(ctx: Context) -> list[Any]:
        return await ctx.gather(leaf.call(), leaf.options(tenant="other").call())

    handle = await root.options(tenant="acme").enqueue()
    alone = await root.enqueue()
    await kit.drain()
    assert await handle.result(timeout=30) == ["acme", "other"]
    assert await alone.result(timeout=30) == [None, "other"]
