"""Handles created from an ID: waited for, followed, cancelled and retried, async and blocking."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from shiftboss import App, Context
from shiftboss.db import Database
from shiftboss.extensions.ai.errors import TooCostly
from shiftboss.kit import Kit
from shiftboss.model.errors import NotFound, ResultTimeout, TaskFailed, UsageError
from shiftboss.model.task import NewTask, State, Status

app = App("handles")
steps = asyncio.Queue[int]()


@app.task()
async def climb(ctx: Context) -> int:
    while (step := await steps.get()) < 100:
        ctx.progress(step, f"at {step}")
    return step


@app.task(max_attempts=1)
async def trip(n: int) -> int:
    if n == 0:
        raise ValueError("no")
    return n


async def test_a_handle_from_an_id_alone(database_url: str) -> None:
    async with Kit.open(app, database_url) as kit:
        made = await trip.enqueue(7)
        for handle in (app.handle(made.id), app.handle(str(made.id)), trip.handle(str(made.id))):
            assert await handle.status() == Status.QUEUED
        await kit.drain()
        assert await app.handle(made.id).result(timeout=30) == 7


async def test_wait_tells_how_it_ended_and_retry_starts_it_over(database_url: str) -> None:
    async with Kit.open(app, database_url) as kit:
        handle = await trip.enqueue(0)
        with pytest.raises(ResultTimeout):
            await handle.wait(timeout=0.05)
        assert not await handle.retry()
        await kit.drain()
        outcome = await handle.wait(timeout=30)
        assert (outcome.status, outcome.result) == ("Failed", None)
        assert "ValueError" in (outcome.error or "")
        assert await handle.retry()
        assert await handle.status() == Status.QUEUED
        await handle.cancel("enough")
        assert (await handle.wait(timeout=30)).status == "Cancelled"


@app.task(max_attempts=1)
async def advise(error: str) -> None:
    if error == "costly":
        raise TooCostly("openai", "a call of about $9.00 exceeds the daily budget")
    raise UsageError("no shelf is free", hint="buy a shelf")


@pytest.mark.parametrize(
    ("params", "hint"),
    [
        ({"error": "costly"}, "raise the budget, or lower the estimate with max_tokens"),
        ({"error": "shelf"}, "buy a shelf"),
        ({"eror": "shelf"}, "handles.advise takes error: string"),
    ],
)
async def test_the_hint_of_an_error_reaches_its_readers(
    params: dict[str, str], hint: str, database_url: str
) -> None:
    async with Kit.open(app, database_url) as kit:
        [made] = await kit.db.tasks.enqueue([NewTask(task_type=advise.name, params=params, max_attempts=1)])
        await kit.drain()
        handle = app.handle(made.id)
        with pytest.raises(TaskFailed) as caught:
            await handle.result(timeout=30)
        assert caught.value.hint == f"{hint}; shiftboss tasks show {made.id}"
        [reason] = await handle.why()
        assert reason.advice == f"{hint}; then run it again: shiftboss tasks retry {made.id}"
        with pytest.raises(UsageError) as raised:
            await app.handle("nonsense").result()
        assert raised.value.__notes__ == ["hint: ids are UUIDs: `handle.id`"]


async def test_follow_yields_every_change_and_ends(db: Database) -> None:
    await app.use(db)
    seen: list[State] = []
    async with app.worker():
        handle = await climb.enqueue()
        async for state in handle.follow(every=0.05):
            seen.append(state)
            if state.status == Status.IN_PROGRESS and state.progress is None:
                steps.put_nowait(40)
            elif state.progress == 40:
                steps.put_nowait(100)
    assert len(seen) == len(set(seen)), "only changes"
    running = [state for state in seen if state.status == Status.IN_PROGRESS]
    assert [(state.progress, state.message) for state in running][-1] == (40, "at 40")
    assert running[-1].worker_id
    assert (seen[-1].status, seen[-1].done) == (Status.COMPLETE, True)


async def test_following_what_is_not_there(db: Database) -> None:
    await app.use(db)
    with pytest.raises(NotFound):
        async for _ in app.handle(uuid4()).follow():
            pass
    with pytest.raises(UsageError, match="'seven' is not the id of a task"):
        app.handle("seven")


def test_without_an_event_loop(database_url: str) -> None:
    own = App("own", url=database_url)

    @own.task(max_attempts=1)
    def flip(ok: bool) -> bool:
        if not ok:
            raise ValueError
        return ok

    try:
        with own.sync.worker():
            made = own.sync.enqueue(flip.call(True))
            handle: Any = own.sync.handle(made.id)
            assert [state.status for state in handle.follow(0.05)][-1] == Status.COMPLETE
            assert handle.result(timeout=30) is True
            assert handle.look()["id"] == made.id
            failed = own.sync.enqueue(flip.call(False))
            assert failed.wait(timeout=30).status == "Failed"
            assert failed.why()[0].reason == "failed"
        assert failed.retry()
        assert failed.cancel("done").status == "Cancelled"
    finally:
        own.sync.close()
