"""The calls of the service, one by one, as any client would make them."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.model.task import NewTask

from .conftest import Stream, refusal, registration

Code = grpc.StatusCode


async def joined(stub: Any, worker_id: str = "w1", **fields: Any) -> str:
    answer = await stub.RegisterWorker(registration(worker_id, **fields))
    return str(answer.session)


async def enqueue(db: Database, count: int = 1, **fields: Any) -> list[Any]:
    tasks = [NewTask(task_type="echo", params={"n": n}, **fields) for n in range(count)]
    return [made.id for made in await db.tasks.enqueue(tasks)]


def done(task: pb.Assignment, result: str = "") -> pb.Completion:
    return pb.Completion(
        held=pb.Held(task_id=task.task_id, lease=task.lease),
        seconds=0.5,
        completed=pb.Completed(result_json=result),
    )


def report(worker_id: str, session: str, *completions: pb.Completion) -> pb.ReportCompletionRequest:
    return pb.ReportCompletionRequest(worker_id=worker_id, session=session, completions=completions)


async def test_a_worker_is_given_tasks_and_ends_them(stub: Any, db: Database) -> None:
    ids = await enqueue(db, 3)
    session = await joined(stub)
    stream = Stream(stub, "w1", session)
    await stream.say(free_slots=5)
    tasks = await stream.tasks(3)
    assert [task.task_id for task in tasks] == [str(id) for id in ids]
    assert [json.loads(task.params_json)["n"] for task in tasks] == [0, 1, 2]
    await stream.say(free_slots=2, accepted=[task.lease for task in tasks])
    failed = pb.Completion(
        held=pb.Held(task_id=tasks[1].task_id, lease=tasks[1].lease), failed=pb.Failed(error="no", final=True)
    )
    later = pb.Completion(
        held=pb.Held(task_id=tasks[2].task_id, lease=tasks[2].lease),
        postponed=pb.Postponed(seconds=60, reason="provider is open"),
    )
    answer = await stub.ReportCompletion(report("w1", session, done(tasks[0], '{"a": 1}'), failed, later))
    assert not answer.stale
    rows = [await db.tasks.get(id) for id in ids]
    assert [row["status"] for row in rows if row] == ["Complete", "Failed", "Queued"]
    assert rows[0]
    assert rows[0]["result_data"] == {"a": 1}
    assert rows[2]
    assert rows[2]["attempts"] == 0
    assert rows[2]["wait_reason"] == "provider is open"


async def test_health_has_the_true_figures(stub: Any, db: Database) -> None:
    await enqueue(db, 4)
    session = await joined(stub)
    stream = Stream(stub, "w1", session)
    await stream.say(free_slots=4)
    tasks = await stream.tasks(4)
    await stream.say(accepted=[task.lease for task in tasks])
    bad = pb.Completion(
        held=pb.Held(task_id=tasks[2].task_id, lease=tasks[2].lease), seconds=2, failed=pb.Failed(error="x")
    )
    await stub.ReportCompletion(report("w1", session, done(tasks[0]), done(tasks[1]), bad))
    usage = pb.ResourceUsage(cpu_percent=12.5, memory_mb=80, task_count=1)
    await stub.Heartbeat(
        pb.HeartbeatRequest(worker_id="w1", session=session, leases=[tasks[3].lease], resource_usage=usage)
    )
    (health,) = (await stub.GetWorkerHealth(pb.GetWorkerHealthRequest(worker_id="w1"))).workers
    assert health.status == "healthy"
    assert (health.active_tasks, health.processed_today) == (1, 3)
    assert health.error_rate == pytest.approx(1 / 3)
    assert health.avg_processing_time == pytest.approx(1.0)
    assert health.resource_usage == usage
    assert health.last_heartbeat_us > 0


async def test_a_repeated_report_counts_once(stub: Any, db: Database) -> None:
    await enqueue(db, 2)
    session = await joined(stub)
    stream = Stream(stub, "w1", session)
    await stream.say(free_slots=2)
    good, bad = await stream.tasks(2)
    await stream.say(accepted=[good.lease, bad.lease])
    failed = pb.Completion(held=pb.Held(task_id=bad.task_id, lease=bad.lease), failed=pb.Failed(error="x"))
    message = report("w1", session, done(good), done(good), failed)
    for _ in range(3):
        assert not (await stub.ReportCompletion(message)).stale
    (health,) = (await stub.GetWorkerHealth(pb.GetWorkerHealthRequest())).workers
    assert health.processed_today == 2
    row = await db.tasks.get(UUID(bad.task_id))
    assert row
    assert row["attempts"] == 1


async def test_cancel_and_pause_reach_the_worker(stub: Any, db: Database) -> None:
    (id,) = await enqueue(db)
    session = await joined(stub)
    stream = Stream(stub, "w1", session)
    await stream.say(free_slots=1)
    (task,) = await stream.tasks(1)
    await stream.say(accepted=[task.lease])
    await db.tasks.cancel([id])
    while not (await stream.call.read()).beat_now:
        pass
    beat = pb.HeartbeatRequest(worker_id="w1", session=session, leases=[task.lease, 999])
    answer = await stub.Heartbeat(beat)
    assert (list(answer.cancel), list(answer.lost)) == ([task.lease], [999])
    await db.workers.set_flags("w1", paused=True)
    assert (await stub.Heartbeat(beat)).paused


async def test_unregister_gives_tasks_back_without_an_attempt(stub: Any, db: Database) -> None:
    (id,) = await enqueue(db)
    session = await joined(stub)
    stream = Stream(stub, "w1", session)
    await stream.say(free_slots=1)
    await stream.tasks(1)
    answer = await stub.UnregisterWorker(pb.UnregisterWorkerRequest(worker_id="w1", session=session))
    assert answer.returned_tasks == 1
    row = await db.tasks.get(id)
    assert row
    assert (row["status"], row["attempts"]) == ("Queued", 0)


async def test_what_is_not_accepted_goes_to_another_and_spends_nothing(stub: Any, db: Database) -> None:
    (id,) = await enqueue(db)
    deaf = Stream(stub, "deaf", await joined(stub, "deaf"))
    await deaf.say(free_slots=1)
    (task,) = await deaf.tasks(1)
    other = Stream(stub, "other", await joined(stub, "other"))
    await other.say(free_slots=1)
    (again,) = await other.tasks(1)
    assert (again.task_id, again.attempt) == (task.task_id, 1)
    assert again.lease != task.lease
    assert task.lease in (await deaf.call.read()).withdrawn
    row = await db.tasks.get(id)
    assert row
    assert row["attempts"] == 0


async def test_a_refused_task_goes_back(stub: Any, db: Database) -> None:
    (id,) = await enqueue(db)
    stream = Stream(stub, "w1", await joined(stub))
    await stream.say(free_slots=1)
    (task,) = await stream.tasks(1)
    await stream.say(free_slots=1, refused=[pb.Refusal(lease=task.lease, reason="too hot")])
    (again,) = await stream.tasks(1)
    assert again.task_id == str(id)
    assert again.attempt == 1
    attempts = await db.tasks.attempts(id)
    assert "too hot" in attempts[0]["error"]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (registration(""), Code.INVALID_ARGUMENT, "worker_id"),
        (registration("a\x00b"), Code.INVALID_ARGUMENT, "worker_id"),
        (registration("x" * 201), Code.INVALID_ARGUMENT, "worker_id"),
        (registration(slots=0), Code.INVALID_ARGUMENT, "max_concurrent_tasks"),
        (registration(slots=10**9), Code.INVALID_ARGUMENT, "max_concurrent_tasks"),
        (registration(protocol_version=7), Code.FAILED_PRECONDITION, "version 7"),
        (registration(capabilities={"processing_speed": "warp"}), Code.INVALID_ARGUMENT, "fast, standard"),
        (registration(lease_seconds=float("nan")), Code.INVALID_ARGUMENT, "lease_seconds"),
        (registration(lease_seconds=-1), Code.INVALID_ARGUMENT, "lease_seconds"),
        (registration(metadata_json="[]"), Code.INVALID_ARGUMENT, "JSON object"),
        (registration(metadata_json="{"), Code.INVALID_ARGUMENT, "not JSON"),
        (registration(incarnation="nope"), Code.INVALID_ARGUMENT, "UUID"),
        (registration(queues=["q"] * 1001), Code.INVALID_ARGUMENT, "1001 entries"),
    ],
)
async def test_bad_registrations_change_nothing(
    stub: Any, db: Database, request_: Any, code: Code, words: str
) -> None:
    error = await refusal(stub.RegisterWorker(request_))
    assert error.code() is code
    assert words in (error.details() or "")
    assert await db.fetch("SELECT * FROM public.workers") == []


async def test_unknown_worker_and_wrong_session(stub: Any) -> None:
    error = await refusal(stub.Heartbeat(pb.HeartbeatRequest(worker_id="ghost", session="x")))
    assert error.code() is Code.NOT_FOUND
    assert "RegisterWorker" in (error.details() or "")
    await joined(stub)
    for call, message in [
        (stub.Heartbeat, pb.HeartbeatRequest(worker_id="w1", session="guess")),
        (stub.ReportCompletion, report("w1", "guess")),
        (stub.UnregisterWorker, pb.UnregisterWorkerRequest(worker_id="w1", session="guess")),
    ]:
        assert (await refusal(call(message))).code() is Code.UNAUTHENTICATED
    stream = Stream(stub, "w1", "guess")
    await stream.say(free_slots=1)
    assert (await refusal(stream.rest())).code() is Code.UNAUTHENTICATED
    missing = await refusal(stub.GetWorkerHealth(pb.GetWorkerHealthRequest(worker_id="ghost")))
    assert missing.code() is Code.NOT_FOUND


async def test_a_connected_name_is_taken_and_a_dead_one_is_free(
    stub: Any, db: Database, eventually: Any
) -> None:
    session = await joined(stub)
    stream = Stream(stub, "w1", session)
    await stream.say(free_slots=1)

    async def attached() -> bool:
        row = await db.fetch_one("SELECT coordinator FROM shiftboss.sessions")
        return bool(row and row["coordinator"])

    async def detached() -> bool:
        return not await attached()

    await eventually(attached)
    assert (await stub.RegisterWorker(registration(session=session))).resumed
    error = await refusal(stub.RegisterWorker(registration()))
    assert error.code() is Code.ALREADY_EXISTS
    assert "another ID" in (error.details() or "")
    stream.call.cancel()
    await eventually(detached)
    assert not (await stub.RegisterWorker(registration())).resumed


async def test_more_slots_than_declared_end_the_stream(stub: Any) -> None:
    stream = Stream(stub, "w1", await joined(stub, slots=5))
    await stream.say(free_slots=6)
    error = await refusal(stream.rest())
    assert error.code() is Code.INVALID_ARGUMENT
    assert "max_concurrent_tasks 5" in (error.details() or "")
    stream = Stream(stub, "w2", await joined(stub, "w2", slots=5))
    await stream.say(free_slots=1, ahead=1001)
    assert "ahead" in ((await refusal(stream.rest())).details() or "")


async def test_a_worker_that_lies_about_its_slots_gets_no_more_than_it_declared(
    stub: Any, db: Database, eventually: Any
) -> None:
    await enqueue(db, 20)
    stream = Stream(stub, "w1", await joined(stub, slots=5))
    await stream.say(free_slots=5)
    tasks = await stream.tasks(5)
    await stream.say(free_slots=5, accepted=[task.lease for task in tasks])
    other = Stream(stub, "w2", await joined(stub, "w2", slots=5))
    await other.say(free_slots=5)
    await other.tasks(5)  # a pass that could have given w1 more has been made
    rows = await db.fetch("SELECT count(*) AS n FROM public.tasks WHERE worker_id = 'w1'")
    assert rows[0]["n"] == 5


async def test_reports_for_tasks_of_others_are_refused_whole(stub: Any, db: Database) -> None:
    await enqueue(db, 2)
    mine, theirs = await joined(stub, "me"), await joined(stub, "them")
    streams = {"me": Stream(stub, "me", mine), "them": Stream(stub, "them", theirs)}
    held = {}
    for name, stream in streams.items():
        await stream.say(free_slots=1)
        (held[name],) = await stream.tasks(1)
        await stream.say(accepted=[held[name].lease])
    error = await refusal(stub.ReportCompletion(report("me", mine, done(held["me"]), done(held["them"]))))
    assert error.code() is Code.PERMISSION_DENIED
    assert held["them"].task_id in (error.details() or "")
    rows = await db.fetch("SELECT DISTINCT status FROM public.tasks")
    assert [row["status"] for row in rows] == ["In Progress"]
    progress = pb.Progress(held=pb.Held(task_id=held["them"].task_id, lease=held["them"].lease), percent=9)
    error = await refusal(
        stub.ReportProgress(pb.ReportProgressRequest(worker_id="me", session=mine, progress=[progress]))
    )
    assert error.code() is Code.PERMISSION_DENIED


async def test_a_slot_whose_task_was_rescued_is_free_again(stub: Any, db: Database) -> None:
    """The worker was cut off and has dropped the task: neither its beats nor its reports name it."""
    session = (await stub.RegisterWorker(registration(slots=1))).session
    stream = Stream(stub, "w1", session)
    await db.tasks.enqueue([NewTask(task_type="t")])
    await stream.say(free_slots=1)
    [first] = await stream.tasks(1)
    await stream.say(free_slots=0, accepted=[first.lease])
    assert await db.tasks.defer([(UUID(first.task_id), first.lease)], [timedelta()], ["rescued"]) == []
    answer = await stub.Heartbeat(pb.HeartbeatRequest(worker_id="w1", session=session))
    assert not answer.lost, "only what the worker names is answered"
    await stream.say(free_slots=1)
    [second] = await stream.tasks(1)
    assert second.task_id == first.task_id
    assert second.lease != first.lease


async def test_stale_reports_say_so(stub: Any, db: Database) -> None:
    (id,) = await enqueue(db)
    session = await joined(stub)
    stream = Stream(stub, "w1", session)
    await stream.say(free_slots=1)
    (task,) = await stream.tasks(1)
    await stream.say(accepted=[task.lease])
    await db.workers.lose_worker(["w1"])
    other = uuid4()
    ghost = pb.Completion(held=pb.Held(task_id=str(other), lease=1), completed=pb.Completed())
    answer = await stub.ReportCompletion(report("w1", session, done(task), ghost))
    assert sorted(answer.stale) == sorted([str(id), str(other)])
    row = await db.tasks.get(id)
    assert row
    assert row["status"] == "Queued"


@pytest.mark.parametrize(
    ("completion", "words"),
    [
        (pb.Completion(held=pb.Held(task_id="x", lease=1), completed=pb.Completed()), "UUID"),
        (pb.Completion(held=pb.Held(task_id=str(uuid4()), lease=1)), "no outcome"),
        (pb.Completion(held=pb.Held(task_id=str(uuid4())), completed=pb.Completed(result_json="{")), "JSON"),
        (
            pb.Completion(
                held=pb.Held(task_id=str(uuid4())), completed=pb.Completed(result_json='"\\u0000"')
            ),
            "NUL",
        ),
        (pb.Completion(held=pb.Held(task_id=str(uuid4())), failed=pb.Failed(kind="odd")), "timeout"),
        (
            pb.Completion(held=pb.Held(task_id=str(uuid4())), seconds=float("inf"), cancelled=pb.Cancelled()),
            "seconds",
        ),
    ],
)
async def test_malformed_reports_say_what_is_wrong(stub: Any, completion: pb.Completion, words: str) -> None:
    session = await joined(stub)
    error = await refusal(stub.ReportCompletion(report("w1", session, completion)))
    assert error.code() is Code.INVALID_ARGUMENT
    assert words in (error.details() or "")


async def test_one_bad_report_does_not_harm_those_beside_it(stub: Any, db: Database) -> None:
    """A number that is JSON but not jsonb passes our check and fails in the database."""
    await enqueue(db, 2)
    sessions = {name: await joined(stub, name) for name in ("good", "bad")}
    tasks = {}
    for name, session in sessions.items():
        stream = Stream(stub, name, session)
        await stream.say(free_slots=1)
        (tasks[name],) = await stream.tasks(1)
        await stream.say(accepted=[tasks[name].lease])
    results = {"good": "1", "bad": "1e" + "9" * 6}
    calls = [
        stub.ReportCompletion(report(name, sessions[name], done(tasks[name], results[name])))
        for name in ("bad", "good")
    ]
    bad, good = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(bad, grpc.aio.AioRpcError)
    assert bad.code() is Code.INVALID_ARGUMENT
    assert not isinstance(good, BaseException)
    assert not good.stale
