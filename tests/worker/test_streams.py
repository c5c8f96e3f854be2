"""Streams: parts arrive in order, once, and a new run is announced."""

from __future__ import annotations

from typing import Any

import pytest

from shiftboss import Context
from shiftboss.db import Database
from shiftboss.db.stream import Streamed, follow
from shiftboss.model.task import NewTask
from shiftboss.worker.handlers import Handlers
from tests.worker import durable
from tests.worker.conftest import StartWorker
from tests.worker.test_steps import ended, one


def heard(parts: list[Streamed]) -> list[Any]:
    """What a reader has in the end that does as it is told."""
    kept: dict[int, Any] = {}
    for part in parts:
        if part.discard is None:
            kept[part.number] = part.part
        for number in part.discard or ():
            kept.pop(number, None)
    return list(kept.values())


async def test_parts_of_steps_that_run_again_are_taken_back(db: Database, start_worker: StartWorker) -> None:
    handlers = Handlers()

    @handlers.task("writer")
    async def writer(ctx: Context) -> None:
        await ctx.emit(f"title {ctx.attempt}")

        async def chapter(n: int) -> None:
            for word in range(3):
                await ctx.emit([n, word])
            if n == 2 and ctx.attempt == 1:
                raise RuntimeError("out of ink")

        for n in (1, 2, 3):
            await ctx.step(f"chapter {n}", chapter, n)

    id = await one(db, "writer")
    async with start_worker(handlers):
        parts = [part async for part in follow(db.steps, id)]
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))
    assert [part.attempt for part in parts if part.discard is not None] == [2]
    words = [[n, word] for n in (1, 2, 3) for word in range(3)]
    assert sorted(heard(parts), key=str) == sorted([*words, "title 2"], key=str)
    assert heard(parts).index([1, 0]) < heard(parts).index([3, 2])
    assert [part async for part in follow(db.steps, id, after=parts[4].number)] == parts[5:]


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_plain_handlers_emit(
    mode: Any, db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers = Handlers()
    handlers.task("spell", mode=mode)(durable.spell)
    id = await one(db, "spell", params={"word": "owl"})
    async with start_worker(handlers):
        row = await eventually(lambda: ended(db, id), 60)
    assert row["status"] == "Complete", row["error_message"]
    assert [part.part async for part in follow(db.steps, id)] == ["o", "w", "l", "."]


async def test_parts_of_many_tasks_are_stored_together_and_pruned(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, statements = Handlers(), list[int]()
    append = db.steps.append

    async def counted(parts: Any) -> Any:
        statements.append(len(parts))
        return await append(parts)

    db.steps.append = counted  # type: ignore[method-assign]

    @handlers.task("chat")
    async def chat(ctx: Context) -> None:
        for n in range(50):
            await ctx.emit(n)

    made = await db.tasks.enqueue([NewTask(task_type="chat") for _ in range(10)])
    async with start_worker(handlers, concurrency=10):
        for id, *_ in made:
            assert [part.part async for part in follow(db.steps, id)] == list(range(50))
    assert sum(statements) == 500
    assert len(statements) <= 50
    await db.execute("UPDATE tasks SET generation_processed_at = now() - interval '9 days'")
    await db.fetch("SELECT shiftboss.prune('8 days')")
    assert await db.fetch("SELECT * FROM shiftboss.parts") == []


async def test_a_stream_has_a_bound(db: Database, start_worker: StartWorker, eventually: Any) -> None:
    handlers = Handlers()
    await db.execute("INSERT INTO shiftboss.settings VALUES ('max_parts', '10')")

    @handlers.task("endless")
    async def endless(ctx: Context) -> None:
        for n in range(100):
            await ctx.emit(n)

    id = await one(db, "endless", max_attempts=1)
    async with start_worker(handlers):
        row = await eventually(lambda: ended(db, id))
    assert "the maximum of" in row["error_message"]
