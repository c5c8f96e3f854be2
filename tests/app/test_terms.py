"""Options that only the database checks, deleted tasks, and poolers in front of an app's own URL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from shiftboss import App
from shiftboss.app.handle import Handle
from shiftboss.db import Database
from shiftboss.model.errors import NotFound


async def test_backoff_and_origin_reach_the_task(db: Database) -> None:
    app = App("terms")

    @app.task(backoff=2, backoff_factor=3, backoff_max=60, origin="user_requested")
    async def by_decorator() -> None: ...

    @app.task()
    async def by_options() -> None: ...

    await app.use(db)
    given = by_options.options(backoff=2, backoff_factor=3, backoff_max=60, origin="user_requested")
    rows = [await (await task.enqueue()).look() for task in (by_decorator, given)]
    for row in rows:
        assert (row["backoff"], row["backoff_factor"]) == (timedelta(seconds=2), 3)
        assert row["backoff_max"] == timedelta(seconds=60)
        assert (row["origin"], row["priority"]) == ("user_requested", 10)


async def test_pauses_grow_by_the_factor(db: Database) -> None:
    app = App("terms")

    @app.task(backoff=10, backoff_factor=5, max_attempts=9)
    async def flaky() -> None: ...

    await app.use(db)
    handle = await flaky.enqueue()
    pauses = []
    for _ in range(3):
        await db.execute("UPDATE tasks SET run_at = NULL")
        [task] = await db.tasks.claim("w")
        await db.tasks.fail([(task.id, task.lease)], ["boom"], ["failed"], [True])
        row = await handle.look()
        pauses.append((row["run_at"] - row["updated_at"]).total_seconds())
    for pause, expected in zip(pauses, (10, 50, 250), strict=True):
        assert 0.7 * expected < pause < 1.3 * expected


async def test_a_task_that_is_gone_can_not_be_cancelled(db: Database) -> None:
    app = App("gone")
    await app.use(db)
    handle: Handle[Any] = Handle(uuid4(), app)
    with pytest.raises(NotFound, match="no task") as caught:
        await handle.cancel()
    assert "pruned" in (caught.value.hint or "")


@pytest.mark.parametrize("pooled", [True, False])
async def test_an_apps_own_url_may_lead_to_a_pooler(
    database_url: str, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_POOLED", str(pooled))
    monkeypatch.setenv("SHIFTBOSS_DATABASE_POOL_SIZE", "1")
    async with App("pooled", url=database_url) as app:
        db = await app.database()
        for _ in range(20):
            await db.fetch("SELECT %s::int", [1])
        prepared = await db.fetch("SELECT * FROM pg_prepared_statements WHERE NOT from_sql")
    assert bool(prepared) != pooled
