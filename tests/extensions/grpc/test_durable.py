"""Durable work of workers without a database: steps, waits, events, children and streams over gRPC."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import grpc
import orjson
import pytest

from shiftboss import App, Context, SyncContext
from shiftboss.db import Database
from shiftboss.db.stream import follow
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.model.settings import WorkerSettings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Capabilities, Member
from shiftboss.worker.runtime import Worker

from .conftest import StartCoordinator, Stream, refusal, registration

ran: Counter[str] = Counter()


def made() -> App:
    app = App("fed")

    @app.task()
    async def double(n: int) -> int:
        return 2 * n

    @app.task(max_attempts=3, version=3)
    async def research(ctx: Context) -> dict[str, Any]:
        async def search() -> list[int]:
            ran["search"] += 1
            await ctx.emit("searching")
            return [1, 2]

        found = await ctx.step("search", search)
        if ctx.attempt == 1:
            raise RuntimeError("once more")
        await ctx.sleep("rest", 0.1)
        doubled = await ctx.gather(*(double.call(n) for n in found))
        verdict = await ctx.wait_for("verdict", dict, question="Good?")
        await ctx.emit("done")
        return {"doubled": doubled, "verdict": verdict, "attempt": ctx.attempt}

    @app.task()
    def plainly(ctx: SyncContext) -> int:
        n = ctx.step("one", lambda: ran.update(["one"]) or 1)
        ctx.emit(n)
        ctx.sleep("rest", 0.05)
        return n

    @app.task(max_attempts=1)
    async def too_large(ctx: Context) -> Any:
        return await ctx.step("large", lambda: "x" * (2 * 1024 * 1024))

    return app


@asynccontextmanager
async def fed(app: App, *coordinators: Coordinator, name: str = "f1") -> AsyncIterator[Worker]:
    """A worker with no database."""
    source = CoordinatorSource([one.address for one in coordinators], CoordinatorSettings())
    handlers = app.handlers
    can = Capabilities(
        task_types=[handler.name for handler in handlers],
        versions={handler.name: handler.versions for handler in handlers if handler.versions},
        max_concurrent_tasks=5,
    )
    settings = WorkerSettings(beat_seconds=0.2, poll_seconds=0.2, grace_seconds=5)
    async with Worker(source, handlers, Member(id=name, capabilities=can), settings) as worker:
        yield worker


async def enqueue(db: Database, task_type: str, **params: Any) -> UUID:
    [made] = await db.tasks.enqueue([NewTask(task_type=task_type, params=params, max_attempts=3)])
    return made.id


async def ended(db: Database, id: UUID) -> dict[str, Any]:
    """The task when it has ended; waits end meanwhile as the leader would see to it."""
    async with asyncio.timeout(30):
        while True:
            await db.steps.wake_all_due()
            task = await db.tasks.get(id)
            assert task is not None
            if task["status"] in ("Complete", "Failed", "Cancelled"):
                return dict(task)
            await asyncio.sleep(0.05)


async def held(db: Database, stub: Any, worker_id: str = "w1") -> tuple[dict[str, str], pb.Held]:
    """A task in the hands of a worker that is driven by hand, and who that is."""
    registered = await stub.RegisterWorker(registration(worker_id))
    stream = Stream(stub, worker_id, registered.session)
    await stream.say(free_slots=1)
    await enqueue(db, "by hand")
    [given] = await stream.tasks(1)
    await stream.say(accepted=[given.lease])
    who = {"worker_id": worker_id, "session": registered.session}
    return who, pb.Held(task_id=given.task_id, lease=given.lease)


async def test_a_fed_worker_does_everything_that_one_with_a_database_does(
    db: Database, coordinator: Coordinator, stub: Any, eventually: Any
) -> None:
    ran.clear()
    async with fed(made(), coordinator):
        id = await enqueue(db, "fed.research")

        async def asks() -> bool:
            await db.steps.wake_all_due()
            return bool(await db.steps.approvals(id))

        await eventually(asks, timeout=20)
        (question,) = await db.steps.approvals(id)
        assert (question["question"], question["schema"]["type"]) == ("Good?", "object")
        answer = pb.SendEventRequest(key="verdict", payload_json='{"by": "Ann"}', task_id=str(id))
        assert (await stub.SendEvent(answer)).woken == 1
        task = await ended(db, id)
    assert task["result_data"] == {"doubled": [2, 4], "verdict": {"by": "Ann"}, "attempt": 2}
    assert ran == {"search": 1}
    assert task["requires"] == {"version": {"fed.research": ["3"]}}
    outcomes = [one["outcome"] for one in await db.tasks.attempts(id)]
    assert outcomes == ["failed", "suspended", "suspended", "suspended", "complete"]
    parts = [part async for part in follow(db.steps, id)]
    kept = {part.number: part.part for part in parts if part.discard is None}
    for part in parts:
        for number in part.discard or ():
            kept.pop(number, None)
    assert list(kept.values()) == ["searching", "done"]


async def test_plain_handlers_of_a_fed_worker_have_steps(db: Database, coordinator: Coordinator) -> None:
    ran.clear()
    async with fed(made(), coordinator):
        task = await ended(db, await enqueue(db, "fed.plainly"))
    assert (task["status"], task["result_data"], ran) == ("Complete", 1, {"one": 1})


async def test_a_result_that_is_too_large_fails_its_task_only(db: Database, coordinator: Coordinator) -> None:
    async with fed(made(), coordinator):
        task = await ended(db, await enqueue(db, "fed.too_large"))
        assert "at most" in task["error_message"]
        assert (await ended(db, await enqueue(db, "fed.plainly")))["status"] == "Complete"


async def test_steps_go_on_at_another_coordinator(db: Database, start: StartCoordinator) -> None:
    first, second = await start(), await start()
    app, gate, reached = App("moved"), asyncio.Event(), asyncio.Event()

    @app.task()
    async def work(ctx: Context) -> int:
        one = await ctx.step("one", lambda: 1)
        reached.set()
        await gate.wait()
        return one + await ctx.step("two", lambda: 2)

    async with fed(app, first, second):
        id = await enqueue(db, "moved.work")
        await asyncio.wait_for(reached.wait(), 15)
        await first.stop()
        gate.set()
        assert (await ended(db, id))["result_data"] == 3
    assert [row["outcome"] for row in await db.tasks.attempts(id)] == ["complete"]


async def test_a_task_that_has_begun_is_given_to_workers_of_its_version(
    db: Database, coordinator: Coordinator, eventually: Any
) -> None:
    def versioned(version: int, *compatible: int) -> App:
        app = App("dated")

        @app.task(version=version, compatible=list(compatible))
        async def work(ctx: Context) -> int:
            await ctx.sleep("rest", 0.05)
            return version

        return app

    async with fed(versioned(3), coordinator, name="old"):
        id = await enqueue(db, "dated.work")
        await eventually(lambda: db.fetch("SELECT FROM shiftboss.steps"))
    await db.steps.wake_all_due()
    async with fed(versioned(4), coordinator, name="new"):

        async def told() -> bool:
            await db.steps.wake_all_due()
            return any("version" in one.reason for one in await db.tasks.why(id))

        await eventually(told, timeout=15)
        async with fed(versioned(5, 3), coordinator, name="newer"):
            assert (await ended(db, id))["result_data"] == 5


async def test_steps_of_tasks_of_others_are_neither_shown_nor_stored(db: Database, stub: Any) -> None:
    _, theirs = await held(db, stub, "w1")
    registered = await stub.RegisterWorker(registration("w2"))
    me = {"worker_id": "w2", "session": registered.session}
    loaded = await stub.LoadSteps(pb.LoadStepsRequest(**me, tasks=[pb.Begun(held=theirs)]))
    assert list(loaded.tasks) == []
    step = pb.StoredStep(held=theirs, name="s", ordinal=1, result_json="1")
    error = await refusal(stub.StoreSteps(pb.StoreStepsRequest(**me, steps=[step])))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    part = pb.StreamPart(held=theirs, part_json="1")
    error = await refusal(stub.AppendParts(pb.AppendPartsRequest(**me, parts=[part])))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    stale = pb.StoredStep(held=pb.Held(task_id=str(uuid4()), lease=1), name="s", ordinal=1)
    answer = await stub.StoreSteps(pb.StoreStepsRequest(**me, steps=[stale]))
    assert list(answer.stale) == [stale.held.task_id]


async def test_messages_may_be_repeated(db: Database, stub: Any) -> None:
    who, mine = await held(db, stub)
    parts = [pb.StreamPart(held=mine, part_json=str(n), place=n) for n in (1, 2, 3)]
    for some in (parts[:2], parts[:2], parts[1:], parts):
        await stub.AppendParts(pb.AppendPartsRequest(**who, parts=some))
    id = UUID(mine.task_id)
    assert [row["part"] for row in await db.steps.parts(id)] == [1, 2, 3]
    for result in ("1", "2"):
        step = pb.StoredStep(held=mine, name="s", ordinal=1, result_json=result)
        await stub.StoreSteps(pb.StoreStepsRequest(**who, steps=[step]))
    loaded = await stub.LoadSteps(pb.LoadStepsRequest(**who, tasks=[pb.Begun(held=mine)]))
    assert orjson.loads(loaded.tasks[0].steps_json) == [["step", "s", 1, "done", 1, None]]


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("StoreSteps", {"steps": [{"name": "", "ordinal": 1}]}),
        ("StoreSteps", {"steps": [{"name": "s", "ordinal": 0}]}),
        ("StoreSteps", {"steps": [{"name": "s", "ordinal": 1, "result_json": "{"}]}),
        ("StoreSteps", {"steps": [{"name": "s", "ordinal": 1, "also_json": "[]"}]}),
        ("StoreSteps", {"steps": [{"name": "s", "ordinal": 1, "also_json": '{"nothing": [1]}'}]}),
        ("AppendParts", {"parts": [{"part_json": ""}]}),
        ("ReportCompletion", {"completions": [{"suspended": {"waits_json": "[]"}}]}),
        ("ReportCompletion", {"completions": [{"suspended": {"waits_json": '[{"kind": "nap"}]'}}]}),
        ("Ask", {"what": "ai", "arguments_json": "[]"}),
    ],
)
async def test_what_is_wrong_is_refused_with_a_reason(
    db: Database, stub: Any, method: str, request_: dict[str, Any]
) -> None:
    who, mine = await held(db, stub)
    for items in request_.values():
        for item in items if isinstance(items, list) else ():
            item["held"] = mine
    kind = getattr(pb, f"{method}Request")
    error = await refusal(getattr(stub, method)(kind(**who, **request_)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error.details()


async def test_what_no_extension_answers_is_said(db: Database, stub: Any) -> None:
    who, _ = await held(db, stub)
    error = await refusal(stub.Ask(pb.AskRequest(**who, what="the way")))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    error = await refusal(stub.SendEvent(pb.SendEventRequest(key="")))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
