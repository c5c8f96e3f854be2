"""Batch handlers: one call for many tasks, one lease and one outcome each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from shiftboss import App, Batch, GiveUp, inject
from shiftboss.db import Database
from shiftboss.kit import Kit
from shiftboss.model.errors import TaskFailed, UsageError
from shiftboss.worker.handlers import Handlers
from shiftboss.worker.mark import suspects
from shiftboss.worker.middleware import OpenEnvironment

Eventually = Callable[..., Awaitable[Any]]


@dataclass
class Text:
    id: int
    words: str


class Prefix(str): ...


async def test_one_call_takes_more_tasks_than_the_worker_runs_at_a_time(db: Database) -> None:
    app, sizes = App("many"), list[int]()

    @app.task(batch=Batch(max_size=50, max_wait=5))
    async def length(texts: list[Text]) -> list[int]:
        sizes.append(len(texts))
        return [len(text.words) for text in texts]

    async with app:
        lengths = await length.map([Text(n, "x" * n) for n in range(120)])
        async with app.worker(concurrency=3):
            assert await lengths.results(timeout=60) == list(range(120))
    assert len(sizes) == 3
    assert sorted(sizes) == [20, 50, 50]
    row = await db.fetch_one("SELECT count(DISTINCT lease) AS n, max(attempts) AS most FROM tasks")
    past = await db.fetch_one("SELECT count(*) AS n FROM shiftboss.attempts")
    assert row is not None
    assert past is not None
    assert past["n"] == 120


@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_each_task_has_its_own_outcome(mode: str) -> None:
    app, calls = App("mail"), list[list[int]]()

    def outcomes(items: list[int]) -> list[str | Exception]:
        calls.append(sorted(items))
        answers: dict[int, str | Exception] = {0: GiveUp("never"), 1: ValueError("odd")}
        return [answers.get(item, f"sent {item}") for item in items]

    async def send(items: list[int]) -> list[str | Exception]:
        return outcomes(items)

    task = app.task("mail.send", batch=Batch(10, 0.5), max_attempts=2)(send if mode == "async" else outcomes)
    async with app, app.worker():
        group = await task.map(range(4))
        first, second, *others = await group.outcomes(timeout=60)
        assert [one.result for one in others] == ["sent 2", "sent 3"]
        assert "never" in (first.error or "")
        assert "ValueError: odd" in (second.error or "")
        tries = [(await handle.look())["attempts"] for handle in group]
    assert tries == [1, 2, 0, 0]
    assert calls[0] == [0, 1, 2, 3]
    assert calls[1:] == [[1]]


async def test_a_call_that_raises_fails_all_its_tasks(db: Database) -> None:
    app = App("all")

    @app.task(batch=10, max_attempts=1)
    async def broken(items: list[int]) -> list[int]:
        raise RuntimeError("the server is away")

    @app.task(batch=10, max_attempts=1)
    async def short(items: list[int]) -> list[int]:
        return []

    async with app, app.worker():
        errors = [one.error or "" for one in await (await broken.map([1, 2])).outcomes(timeout=60)]
        assert all("RuntimeError: the server is away" in error for error in errors)
        with pytest.raises(TaskFailed, match=r"all\.short returned 0 results for 1 items"):
            await (await short.enqueue(1)).result(timeout=60)


async def test_cancel_and_timeout_end_one_task_and_leave_the_others(eventually: Eventually) -> None:
    app, started, go = App("slow"), list[int](), asyncio.Event()

    @app.task(batch=Batch(3, 10), max_attempts=1)
    async def wait(items: list[int]) -> list[int]:
        started.extend(items)
        await go.wait()
        return items

    async with app, app.worker():
        kept = await wait.enqueue(1)
        late = await wait.options(timeout=1.0).enqueue(2)
        unwanted = await wait.enqueue(3)
        await eventually(lambda: sorted(started) == [1, 2, 3])
        await unwanted.cancel()
        assert (await unwanted.wait(timeout=30)).status == "Cancelled"
        assert "timed out" in ((await late.wait(timeout=30)).error or "")
        go.set()
        assert await kept.result(timeout=30) == 1


async def test_a_call_ends_when_none_of_its_tasks_is_wanted(eventually: Eventually) -> None:
    app, ended = App("gone"), list[str]()

    @app.task(batch=Batch(2, 10), max_attempts=1, timeout=timedelta(seconds=0.5))
    async def wait(items: list[int]) -> list[int]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return items

    async with app, app.worker():
        await (await wait.map([1, 2])).outcomes(timeout=30)
        await eventually(lambda: ended == ["cancelled"])


async def test_a_task_cancelled_while_it_waits_for_others_is_left_out(eventually: Eventually) -> None:
    app, calls = App("left"), list[list[int]]()

    @app.task(batch=Batch(2, 60))
    async def pairs(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    async with app, app.worker():
        unwanted = await pairs.enqueue(1)
        await eventually(lambda: _running(unwanted))
        await unwanted.cancel()
        assert (await unwanted.wait(timeout=30)).status == "Cancelled"
        assert await (await pairs.map([2, 3])).results(timeout=30) == [2, 3]
    assert [sorted(call) for call in calls] == [[2, 3]]


async def _running(handle: Any) -> bool:
    return await handle.status() == "In Progress"


async def test_all_tasks_of_a_call_are_suspects_and_one_alone_is_guilty() -> None:
    app, seen = App("dies"), list[list[int]]()

    @app.task(batch=Batch(3, 1))
    async def look(items: list[int]) -> list[int]:
        await asyncio.sleep(0)
        seen.append(suspects(bytes(worker._mark.words)))
        return items

    async with app, app.worker() as worker:
        await (await look.map([1, 2, 3])).results(timeout=30)
        await (await look.enqueue(4)).result(timeout=30)
        assert [len(leases) for leases in seen] == [3, 1]
        assert suspects(bytes(worker._mark.words)) == []


async def test_resources_are_injected_and_plain_functions_run_in_a_thread() -> None:
    app = App("res")

    @app.resource
    def prefix() -> Prefix:
        return Prefix("> ")

    @app.task(batch=5)
    def quote(lines: list[str], before: Prefix = Prefix("")) -> list[str]:  # noqa: B008
        assert threading.current_thread().name == "batch-res.quote"
        return [before + line for line in lines]

    async with app, app.worker():
        assert await (await quote.enqueue("a")).result(timeout=30) == "> a"


async def test_direct_calls_the_kit_and_the_schema(db: Database, database_url: str) -> None:
    app = App("kit")

    @app.task(batch=Batch(10, 60))
    async def double(numbers: list[int]) -> list[int | ValueError]:
        return [ValueError("negative") if n < 0 else n * 2 for n in numbers]

    assert await double(4) == 8
    with pytest.raises(ValueError, match="negative"):
        await double(-1)
    async with Kit.open(app, database_url) as kit:
        handle = await double.enqueue(5)
        await kit.drain()
        assert await handle.result(timeout=5) == 10
    [published] = app.handlers.schemas()
    assert published["schema"]["properties"]["item"]["type"] == "integer"


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"batch": 0}, "a batch of 0 tasks"),
        ({"batch": 5, "mode": "process"}, "cannot run in a child process"),
    ],
)
def test_what_cannot_be_is_refused(terms: Any, problem: str) -> None:
    def many(items: list[int]) -> list[int]:
        return items

    with pytest.raises(UsageError, match=problem):
        App("bad").task(**terms)(many)


async def test_a_batch_and_an_ordinary_task_are_given_the_workers_database(db: Database) -> None:
    app = App("given")

    @app.task(batch=10)
    async def squares(numbers: list[int], db: Database = inject) -> list[int]:
        [row] = await db.fetch(
            "SELECT array_agg(n * n ORDER BY n) AS found FROM unnest(%s::int[]) n", [numbers]
        )
        return list(row["found"])

    @app.task()
    async def one(number: int, db: Database = inject) -> int:
        [row] = await db.fetch("SELECT %s + 1 AS found", [number])
        return int(row["found"])

    async with app, app.worker():
        found = await squares.map([1, 2, 3])
        assert await found.results(timeout=60) == [1, 4, 9]
        assert await (await one.enqueue(41)).result(timeout=60) == 42


async def test_a_worker_without_a_database_says_so() -> None:
    handlers = Handlers()

    @handlers.task("lookup")
    async def lookup(number: int, db: Database = inject) -> int:
        return number

    with pytest.raises(UsageError, match="this worker has no database for parameter db"):
        OpenEnvironment(handlers.environment).fill(handlers.named("lookup").injected, {"number": 1})
