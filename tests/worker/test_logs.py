"""Log lines of handlers are stored with their task, limited, and delay nothing."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from shiftboss import Context
from shiftboss.db import Database, Row
from shiftboss.model.errors import DatabaseUnavailable
from shiftboss.model.log import LogLine
from shiftboss.worker import logs
from shiftboss.worker.handlers import Handlers
from tests.worker import chatty
from tests.worker.conftest import StartWorker
from tests.worker.test_steps import ended, one

shop = logging.getLogger("shop")


async def lines(db: Database, id: UUID) -> list[Row]:
    return [row async for row in db.logs.follow(id)]


async def test_lines_carry_attempt_step_level_and_logger(db: Database, start_worker: StartWorker) -> None:
    handlers, level = Handlers(), logging.getLogger().level

    @handlers.task("sell")
    async def sell(ctx: Context) -> None:
        shop.warning("opened by %s", "Ann")
        await ctx.step("count", lambda: shop.error("nothing\x00left"))
        await asyncio.to_thread(shop.warning, "from another thread")
        ctx.log.warning("closing", till=3)
        shop.debug("below the level of the root logger")
        if ctx.attempt == 1:
            raise RuntimeError("closed")

    id = await one(db, "sell", max_attempts=2)
    async with start_worker(handlers):
        assert logging.getLogger().level == level
        found = await lines(db, id)
    told = [(row["attempt"], row["step"], row["level"], row["logger"], row["message"]) for row in found]
    assert told == [
        (1, None, "warning", "shop", "opened by Ann"),
        (1, "count#1", "error", "shop", "nothing\\x00left"),
        (1, None, "warning", "shop", "from another thread"),
        (1, None, "warning", "shiftboss.task", "closing till=3"),
        (2, None, "warning", "shop", "opened by Ann"),
        (2, None, "warning", "shop", "from another thread"),
        (2, None, "warning", "shiftboss.task", "closing till=3"),
    ]
    assert not any(isinstance(one, logs.Capture) for one in logging.getLogger().handlers)
    assert [row["message"] for row in await db.logs.read(id, level=logging.ERROR)] == ["nothing\\x00left"]
    assert await db.logs.read(id, after=found[-2]["id"]) == found[-1:]


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_plain_handlers_log(mode: Any, db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    handlers.task("talk", mode=mode)(chatty.talk)
    id = await one(db, "talk")
    async with start_worker(handlers):
        found = await lines(db, id)
    told = [(row["step"], row["message"].splitlines()[0]) for row in found]
    covered = [(None, "from a thread of its own")] if mode == "process" else []
    assert told == [(None, "before the step"), ("think#1", "in the step"), *covered, (None, "it went wrong")]
    assert found[-1]["message"].endswith("ValueError: no stock")


async def test_what_a_child_logged_before_it_died_is_kept(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    handlers.task("die", mode="process")(chatty.die)
    id = await one(db, "die", max_attempts=1)
    async with start_worker(handlers):
        assert [row["message"] for row in await lines(db, id)] == ["one", "last words"]


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_a_flood_is_cut_and_counted(mode: Any, db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()
    handlers.task("flood", mode=mode)(chatty.flood)
    id = await one(db, "flood", params={"lines": 30_000})
    async with start_worker(handlers):
        found = await lines(db, id)
    row = await ended(db, id)
    assert row["status"] == "Complete"
    assert row["result_data"] == 30_000
    kept = [row for row in found if not row["dropped"]]
    assert sum(row["dropped"] for row in found) + len(kept) == 30_000
    assert len(found) < logs.BURST + logs.LAST + 200
    assert kept[-1]["message"] == "line 29999"
    assert "lines were dropped" in next(row["message"] for row in found if row["dropped"])


async def test_a_log_has_a_bound_per_task_and_is_pruned_with_it(
    db: Database, start_worker: StartWorker
) -> None:
    handlers = Handlers()
    await db.execute("INSERT INTO shiftboss.settings VALUES ('max_log_lines', '10')")

    @handlers.task("again")
    async def again(ctx: Context) -> None:
        for n in range(6):
            shop.warning("%d of %d", n, ctx.attempt)
        raise RuntimeError("once more")

    id = await one(db, "again", max_attempts=4)
    async with start_worker(handlers):
        await lines(db, id)
    found = await db.logs.read(id)
    assert found[0]["dropped"] + len(found) - 1 == 24
    assert len(found) == 11
    assert found[-1]["message"] == "5 of 4"
    await db.execute("UPDATE tasks SET generation_processed_at = now() - interval '9 days'")
    await db.fetch("SELECT shiftboss.prune('8 days')")
    assert await db.fetch("SELECT * FROM shiftboss.task_logs") == []


async def test_lines_of_many_tasks_travel_together_and_wait_for_the_database(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, batches, away = Handlers(), list[int](), [True]
    append = db.logs.append

    async def counted(lines: list[LogLine], ended: Any = ()) -> None:
        if away[0]:
            raise DatabaseUnavailable("away")
        batches.append(len(lines))
        await append(lines, ended)

    db.logs.append = counted  # type: ignore[method-assign,assignment]

    @handlers.task("chat")
    async def chat(ctx: Context) -> None:
        shop.warning("hello")

    ids = [await one(db, "chat") for _ in range(50)]
    async with start_worker(handlers, concurrency=10):
        for id in ids:
            await eventually(partial(ended, db, id))
        away[0] = False
        assert [row["message"] for row in await lines(db, ids[0])] == ["hello"]
    assert sum(batches) == 50
    assert len(batches) <= 5


async def test_python_still_shows_warnings_where_nobody_configured_logging(
    db: Database, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    handlers = Handlers()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    @handlers.task("warn")
    async def warn() -> None:
        shop.warning("seen by people")
        shop.info("not shown")

    id = await one(db, "warn")
    async with start_worker(handlers):
        assert len(await lines(db, id)) == 1
    assert capsys.readouterr().err == "seen by people\n"


async def test_logs_can_be_turned_off(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()

    @handlers.task("quiet")
    async def quiet() -> int:
        shop.warning("nobody keeps this")
        return os.getpid()

    id = await one(db, "quiet")
    async with start_worker(handlers, task_logs=False):
        assert await lines(db, id) == []
