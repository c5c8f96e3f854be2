"""Steps: run once, kept under the lease, found by later attempts."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel

from shiftboss import Context, StepRetry, SyncContext, step
from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.task import NewTask
from shiftboss.worker.handlers import Handlers
from tests.worker import durable
from tests.worker.conftest import StartWorker


class Source(BaseModel):
    id: int
    title: str


async def ended(db: Database, id: UUID) -> dict[str, Any] | None:
    row = await db.tasks.get(id)
    return row if row and row["status"] in ("Complete", "Failed", "Cancelled") else None


async def one(db: Database, task_type: str, **terms: Any) -> UUID:
    (made,) = await db.tasks.enqueue([NewTask(task_type=task_type, **terms)])
    return made.id


async def test_a_later_attempt_gets_results_without_running_steps(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, ran = Handlers(), Counter[str]()

    async def search(topic: str) -> list[Source]:
        ran["search"] += 1
        return [Source(id=n, title=f"{topic} {n}") for n in (1, 2)]

    def draft(source: Source) -> str:
        ran[f"draft {source.id}"] += 1
        return source.title.upper()

    @handlers.task("research")
    async def research(ctx: Context, topic: str) -> dict[str, Any]:
        sources = await ctx.step("search", search, topic)
        assert all(isinstance(source, Source) for source in sources)
        drafts = [await ctx.step("draft", draft, source) for source in sources]
        if ctx.attempt < 3:
            raise RuntimeError("the ninth call failed")
        return {"drafts": drafts}

    id = await one(db, "research", params={"topic": "owls"})
    async with start_worker(handlers):
        row = await eventually(lambda: ended(db, id))
    assert row["result_data"] == {"drafts": ["OWLS 1", "OWLS 2"]}
    assert row["attempts"] == 2
    assert ran == {"search": 1, "draft 1": 1, "draft 2": 1}
    steps = await db.steps.of(id)
    assert [(s["name"], s["ordinal"], s["state"], s["attempt"]) for s in steps] == [
        ("search", 1, "done", 1),
        ("draft", 1, "done", 1),
        ("draft", 2, "done", 1),
    ]


async def test_a_stale_attempt_stores_nothing_and_ends(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, reached, let_go = Handlers(), asyncio.Event(), asyncio.Event()
    after: list[int] = []

    @handlers.task("slow")
    async def slow(ctx: Context) -> None:
        async def wait() -> int:
            reached.set()
            await let_go.wait()
            return ctx.attempt

        try:
            await ctx.step("wait", wait)
        except Exception:  # an attempt that lost its lease is not stopped by this
            after.append(-1)
        after.append(ctx.attempt)

    id = await one(db, "slow")
    async with start_worker(handlers, beat_seconds=30.0, lease_seconds=120.0):
        await asyncio.wait_for(reached.wait(), 20)
        row = await db.tasks.get(id)
        assert row is not None
        # another session takes the task away, as a rescue would
        await db.tasks.defer([(id, row["lease"])], [timedelta(hours=1)], ["taken"])
        let_go.set()
        await asyncio.sleep(0)
        await eventually(lambda: not slow_is_running())
        assert await db.steps.of(id) == []
        assert after == []
    row = await db.tasks.get(id)
    assert row is not None
    assert (row["status"], row["attempts"]) == ("Queued", 0)


def slow_is_running() -> bool:
    return any("slow" in str(task.get_coro()) for task in asyncio.all_tasks())


async def test_unknown_missing_and_reordered_steps(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    """Between two attempts the code changes: steps are matched by name and ordinal, nothing else."""
    handlers, ran = Handlers(), list[str]()

    def note(name: str) -> str:
        ran.append(name)
        return name

    @handlers.task("changing")
    async def changing(ctx: Context) -> list[str]:
        if ctx.attempt == 1:
            for name in ("a", "b", "gone", "a"):
                await ctx.step(name, note, name)
            raise RuntimeError("deploy another version")
        return [await ctx.step(name, note, f"{name} again") for name in ("b", "new", "a", "a", "a")]

    id = await one(db, "changing")
    async with start_worker(handlers):
        row = await eventually(lambda: ended(db, id))
    assert row["result_data"] == ["b", "new again", "a", "a", "a again"]
    assert ran == ["a", "b", "gone", "a", "new again", "a again"]


async def test_a_step_of_another_type_than_recorded_is_refused_in_words(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers = Handlers()

    @handlers.task("typed")
    async def typed(ctx: Context) -> Any:
        if ctx.attempt == 1:
            await ctx.step("answer", lambda: "many")
            raise RuntimeError
        return await ctx.step("answer", lambda: 42, type=int)

    id = await one(db, "typed", max_attempts=2)
    async with start_worker(handlers):
        row = await eventually(lambda: ended(db, id))
    assert row["status"] == "Failed"
    assert "the stored result of step 'answer' does not have the requested type" in row["error_message"]


async def test_retry_and_timeout_of_a_step(db: Database, start_worker: StartWorker, eventually: Any) -> None:
    handlers, tries = Handlers(), Counter[str]()

    async def flaky() -> str:
        tries["flaky"] += 1
        if tries["flaky"] < 3:
            raise ConnectionError("no")
        return "yes"

    async def hangs() -> None:
        tries["hangs"] += 1
        await asyncio.sleep(3600)

    @handlers.task("careful")
    async def careful(ctx: Context) -> str:
        first = await ctx.step("flaky", flaky, retry=StepRetry(3, delay=0.01))
        try:
            await ctx.step("hangs", hangs, timeout=0.05, retry=StepRetry(2, delay=0.01))
        except TimeoutError as error:
            return f"{first}: {error}"
        return "?"

    id = await one(db, "careful")
    async with start_worker(handlers):
        row = await eventually(lambda: ended(db, id))
    assert row["result_data"] == "yes: step 'hangs' took longer than 0.05 s"
    assert tries == {"flaky": 3, "hangs": 2}
    assert [s["name"] for s in await db.steps.of(id)] == ["flaky"]  # what failed is not kept


async def test_a_result_that_is_too_large_is_refused(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers = Handlers()

    @handlers.task("large")
    async def large(ctx: Context) -> None:
        await ctx.step("book", lambda: "x" * 2_000_000)

    id = await one(db, "large", max_attempts=1)
    async with start_worker(handlers):
        row = await eventually(lambda: ended(db, id))
    assert (
        "the result of step 'book' has 2000002 bytes; at most 1048576 can be stored" in row["error_message"]
    )
    assert await db.steps.of(id) == []


async def test_decorated_functions_are_steps_of_the_task_that_calls_them(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, ran = Handlers(), Counter[str]()

    @step
    async def fetch(n: int) -> int:
        ran["fetch"] += 1
        return n * 2

    @step(name="sum", retry=2)
    def add(a: int, b: int) -> int:
        ran["sum"] += 1
        return a + b

    @handlers.task("async")
    async def asynchronous(ctx: Context) -> int:
        both = await ctx.gather(fetch(1), fetch(2))
        if ctx.attempt == 1:
            raise RuntimeError
        return int(sum(both))

    @handlers.task("plain")
    def plain(ctx: SyncContext) -> int:
        total = add(1, add(2, 3))
        if ctx.attempt == 1:
            raise RuntimeError
        return total

    assert (await fetch(4), add(1, 2)) == (8, 3)  # outside a task they simply run
    ran.clear()
    ids = [await one(db, "async"), await one(db, "plain")]
    async with start_worker(handlers):
        rows = [await eventually(partial(ended, db, id)) for id in ids]
    assert [row["result_data"] for row in rows] == [6, 6]
    assert ran == {"fetch": 2, "sum": 2}


@pytest.mark.parametrize("mode", ["thread", "process"])
async def test_steps_of_plain_handlers(
    mode: Any, db: Database, start_worker: StartWorker, eventually: Any, tmp_path: Any
) -> None:
    handlers = Handlers()
    handlers.task("count", mode=mode)(durable.count)
    id = await one(db, "count", params={"folder": str(tmp_path)})
    async with start_worker(handlers):
        row = await eventually(lambda: ended(db, id), 60)
    assert row["result_data"] == {"one": 1, "two": [2, 2], "attempt": 2}, row["error_message"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one-1", "two-1"]


async def test_steps_of_many_tasks_travel_in_one_statement(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, statements = Handlers(), list[int]()
    store = db.steps.store

    async def counted(steps: Any) -> Any:
        statements.append(len(steps))
        return await store(steps)

    db.steps.store = counted  # type: ignore[method-assign]

    @handlers.task("many")
    async def many(ctx: Context) -> int:
        return sum([await ctx.step("n", lambda n=n: n) for n in range(10)])

    made = await db.tasks.enqueue([NewTask(task_type="many") for _ in range(20)])
    async with start_worker(handlers, concurrency=20):
        rows = [await eventually(partial(ended, db, id), 30) for id, *_ in made]
    assert {row["result_data"] for row in rows} == {45}
    assert sum(statements) == 200
    assert len(statements) < 100


async def test_steps_go_with_their_task(db: Database, start_worker: StartWorker, eventually: Any) -> None:
    handlers = Handlers()

    @handlers.task("short")
    async def short(ctx: Context) -> None:
        await ctx.step("only", lambda: 1)

    id, other = await one(db, "short"), await one(db, "short")
    async with start_worker(handlers):
        await eventually(lambda: ended(db, id))
        await eventually(lambda: ended(db, other))
    await db.execute("DELETE FROM tasks WHERE id = %s", [other])
    await db.execute("UPDATE tasks SET generation_processed_at = now() - interval '9 days'")
    assert await db.tasks.prune(timedelta(days=8)) == 1
    assert await db.steps.of(id) == []
    await db.tasks.tidy(timedelta(days=8))
    assert await db.steps.of(other) == []


async def test_a_retry_keeps_results_of_steps_unless_told_otherwise(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, ran = Handlers(), list[str]()

    @handlers.task("staged")
    async def staged(ctx: Context) -> None:
        for name in ("a", "b", "c"):
            await ctx.step(name, ran.append, name)
        await ctx.step("broken", fails)

    def fails() -> None:
        ran.append("broken")
        raise RuntimeError

    id = await one(db, "staged", max_attempts=1)
    async with start_worker(handlers):
        await eventually(lambda: ended(db, id))
        with pytest.raises(Exception, match='has no step "d"'):
            await db.tasks.retry([id], "d")
        await db.tasks.retry([id], "b")
        await eventually(lambda: ended(db, id))
        assert ran == ["a", "b", "c", "broken", "b", "c", "broken"]
        ran.clear()
        await db.tasks.retry([id])
        await eventually(lambda: ended(db, id))
        assert ran == ["broken"], "it goes on at the step that failed"
        ran.clear()
        await db.tasks.retry([id], restart=True)
        await eventually(lambda: ended(db, id))
    assert ran == ["a", "b", "c", "broken"]


async def test_a_retry_waits_again_for_what_timed_out_or_failed(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers, ran = Handlers(), list[str]()

    @handlers.task("patient")
    async def patient(ctx: Context) -> None:
        await ctx.step("paid", ran.append, "paid")
        ran.append(await ctx.wait_for("go", str, timeout=0.05 if "late" not in ran else 60))

    async def timed_out() -> dict[str, Any] | None:
        await db.steps.wake_all_due()
        return await ended(db, id)

    id = await one(db, "patient", max_attempts=1)
    async with start_worker(handlers):
        await eventually(timed_out)
        ran.append("late")
        await db.tasks.retry([id])
        await eventually(lambda: db.fetch("SELECT FROM shiftboss.steps WHERE state = 'waiting'"))
        await db.steps.send_event("go", "now")
        await eventually(lambda: ended(db, id))
    assert ran == ["paid", "late", "now"]


async def test_bad_names_are_refused() -> None:
    from shiftboss.app.inline import inline_context
    from shiftboss.worker.handlers import Handler

    async def handler(ctx: Context) -> None: ...

    context = inline_context(Handler.of(handler, "x", {}))
    assert context is not None
    for name in ("", "x" * 501, "a\x00b"):
        with pytest.raises(UsageError):
            context.step(name, lambda: 1)


async def test_without_a_database_steps_say_what_is_missing() -> None:
    from shiftboss.app.inline import ignore, inline_claim
    from shiftboss.worker.executor import Attempt, Executor
    from shiftboss.worker.handlers import Handler

    async def handler(ctx: Context) -> None:
        await ctx.step("one", lambda: 1)

    handlers = Handlers()
    handlers.add(Handler.of(handler, "fed", {}))
    executor = Executor(handlers, ignore)  # as in a worker that is fed by a coordinator
    attempt = Attempt(inline_claim(handlers.named("fed")), 0.0)
    outcome = await executor.run(attempt)
    await executor.close()
    assert "durable steps and waits need a worker with a database" in str(outcome)


async def test_a_lock_on_one_task_does_not_delay_the_steps_of_others(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    handlers = Handlers()

    @handlers.task("two")
    async def two(ctx: Context) -> int:
        await ctx.step("begin", lambda: 1)
        await let_go.wait()
        return await ctx.step("end", lambda: 2)

    let_go = asyncio.Event()
    ids = [await one(db, "two"), await one(db, "two")]
    async with start_worker(handlers, concurrency=2):
        await eventually(lambda: stored(db, 2))
        async with db.dedicated() as conn, conn.transaction():
            await conn.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [ids[0]])
            let_go.set()
            row = await eventually(lambda: ended(db, ids[1]), 20)
            assert row["result_data"] == 2
            assert await ended(db, ids[0]) is None
        row = await eventually(lambda: ended(db, ids[0]), 20)
    assert row["result_data"] == 2


async def stored(db: Database, count: int) -> bool:
    return len(await db.fetch("SELECT FROM shiftboss.steps")) >= count


async def test_a_result_waits_for_a_database_that_is_away(
    db: Database, start_worker: StartWorker, eventually: Any
) -> None:
    """Every connection is cut again and again: results are stored later, and no step runs twice."""
    handlers, ran = Handlers(), Counter[int]()

    @handlers.task("long")
    async def long(ctx: Context) -> int:
        return sum([await ctx.step("n", count, n) for n in range(40)])

    async def count(n: int) -> int:
        ran[n] += 1
        await asyncio.sleep(0.02)
        return n

    id = await one(db, "long")
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename = current_user"
    )
    async with await Database.open(db.url) as other, start_worker(handlers, by=other):
        async with await psycopg.AsyncConnection.connect(db.url, autocommit=True) as conn:
            for step in (3, 10, 20):
                await eventually(lambda step=step: ran[step])
                await conn.execute(cut)
        row = await eventually(lambda: settled(db, id), 60)
    assert row["result_data"] == sum(range(40))
    assert ran == dict.fromkeys(range(40), 1)


async def settled(db: Database, id: UUID) -> dict[str, Any] | None:
    try:
        return await ended(db, id)
    except DatabaseError:  # this connection was cut as well
        return None
