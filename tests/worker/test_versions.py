"""Versions: a started task continues on workers of its version or of a compatible one."""

from __future__ import annotations

from typing import Any

from shiftboss import App, Context
from shiftboss.app import Task
from shiftboss.kit import Complete, Kit
from shiftboss.model.task import Report


def release(version: int | None, **terms: Any) -> tuple[App, Task[Any, Any]]:
    """The same application, deployed in another version."""
    app = App("shop")

    @app.task(version=version, max_attempts=2, **terms)
    async def order(ctx: Context) -> list[int]:
        seen = [await ctx.step("reserve", lambda: version)]
        await ctx.sleep("pack", 60)
        seen.append(await ctx.step("ship", lambda: version))
        return seen

    return app, app.task_named("shop.order")


async def drain(url: str, app: App, hours: int) -> list[Report]:
    async with Kit.open(app, url) as kit:
        await kit.move(hours=hours)
        return await kit.drain()


async def test_a_rolling_deploy_with_suspended_tasks(database_url: str) -> None:
    old, order = release(3)
    async with Kit.open(old, database_url) as kit:
        begun = await order.enqueue()
        await kit.drain()
        fresh = await order.enqueue()  # has not begun: any version may
    newer, _ = release(4)
    (report,) = await drain(database_url, newer, 1)
    assert report.task.id == fresh.id
    async with Kit.open(newer, database_url) as kit:
        await kit.move(hours=2)
        (done,) = await kit.drain()
        assert (done.task.id, done.outcome) == (fresh.id, Complete(b"[4,4]"))
        why = await kit.db.tasks.why(begun.id)
        assert [reason.reason for reason in why] == ["no worker of version 3"]
    compatible, _ = release(5, compatible=[3, 4])
    (report,) = await drain(database_url, compatible, 3)
    assert (report.task.id, report.outcome) == (begun.id, Complete(b"[3,5]"))


async def test_an_old_version_does_not_take_what_a_newer_one_began(database_url: str) -> None:
    newer, order = release(4)
    async with Kit.open(newer, database_url) as kit:
        handle = await order.enqueue()
        await kit.drain()
    for version in (3, None):
        assert await drain(database_url, release(version)[0], 1) == []
    async with Kit.open(release(3)[0], database_url) as kit:
        await kit.db.tasks.cancel([handle.id])
        await kit.db.tasks.retry([handle.id])  # any version may go on with it
        await kit.move(hours=2)
        assert [report.task.id for report in await kit.drain()] == [handle.id]
