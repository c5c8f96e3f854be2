"""One bad task or call affects no other, and temporary errors are not treated as permanent."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from shiftboss.db import Database
from shiftboss.db.installation import Installation
from shiftboss.extensions.grpc.auth import DatabaseTokens
from shiftboss.extensions.grpc.link import CoordinatorUnavailable, Link
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.extensions.grpc.registry import Registry
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.model.task import Claimed, Complete, Report
from shiftboss.model.worker import Member
from tests.supervisor.test_starts import away

from .conftest import StartCoordinator, Stream, refusal, registration
from .test_source import connect, enqueue

__all__ = ["connect"]


async def claim(source: CoordinatorSource, count: int) -> list[Claimed]:
    """As the runtime does: ask, wait for word, ask again."""
    found: list[Claimed] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            found += await source.claim(count - len(found))
            if len(found) < count:
                await source.arrived.wait()
    return found


async def test_a_stream_survives_the_failure_of_another_call(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    """A beat that got no answer takes a new connection; the stream has to follow it."""
    source = await connect(coordinator)
    await enqueue(db, 1)
    await claim(source, 1)
    link = source._link
    await link.move_on(link.turn)
    await enqueue(db, 1)
    await claim(source, 1)


async def test_a_call_whose_connection_another_gives_up_is_not_a_cancelled_task(
    coordinator: Coordinator, db: Database, connect: Any, eventually: Any
) -> None:
    """A cancelled heart would beat no more."""
    source = await connect(coordinator)
    link = source._link
    async with db.transaction() as conn:
        await conn.execute("LOCK TABLE public.workers IN ACCESS EXCLUSIVE MODE")
        beat = asyncio.create_task(source.beat([], {}, []))
        await eventually(lambda: len(link._channel._active_calls) == 2)  # the stream's, too
        await link.move_on(link.turn)
        with pytest.raises(CoordinatorUnavailable, match="was closed"):
            await beat
    orders = await source.beat([], {}, [])
    assert orders.known


async def test_a_report_that_comes_too_fast_waits_and_keeps_its_result(
    db: Database, start: StartCoordinator, connect: Any, eventually: Any
) -> None:
    source = await connect(await start(calls_per_second=2))
    await enqueue(db, 1)
    report = Report((await claim(source, 1))[0], Complete(b'{"dear": 1}'), 0.1)
    with pytest.raises(CoordinatorUnavailable, match="must wait"):
        while True:
            await source.beat([report.task.lease], {}, [])
    with pytest.raises(CoordinatorUnavailable, match="must wait"):
        await source.report([report])

    async def reported() -> bool:
        try:
            return await source.report([report]) == []
        except CoordinatorUnavailable:
            return False

    await eventually(reported)
    (row,) = await db.fetch("SELECT status, result_data FROM public.tasks")
    assert row == {"status": "Complete", "result_data": {"dear": 1}}


async def test_a_token_that_can_not_be_looked_up_is_no_wrong_token(
    db: Database, database_url: str, start: StartCoordinator
) -> None:
    away = await Database.open(database_url)
    await away.close()
    coordinator = await start(DatabaseTokens(away))
    link = Link([coordinator.address], CoordinatorSettings(token="sb_any"))
    with pytest.raises(CoordinatorUnavailable, match="the database is unreachable"):
        await link.call("RegisterWorker", registration())
    await link.close()


async def test_odd_requirements_hold_up_nobody_else(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    """They pass the database's check of types, but no set can hold them and no double."""
    for requires in ('{"features": [{"a": 1}]}', '{"features": [1]}', '{"memory_gb": 1e400}'):
        await db.execute(
            "INSERT INTO public.tasks (task_type, params, requires, priority) VALUES ('odd', '{}', %s, 15)",
            [requires],
        )
    await enqueue(db, 1)
    source = await connect(coordinator)
    (task,) = await claim(source, 1)
    assert task.task_type == "echo"


async def test_a_moment_that_python_does_not_know_holds_up_nobody(
    coordinator: Coordinator, db: Database, connect: Any
) -> None:
    await db.execute(
        "INSERT INTO public.tasks (task_type, params, created_at) VALUES ('far', '{}', '-infinity'),"
        " ('near', '{}', now())"
    )
    source = await connect(coordinator)
    assert {task.task_type for task in await claim(source, 2)} == {"far", "near"}


async def _read(stream: Stream) -> None:
    """To its end: the status comes after all that was written."""
    async for _ in stream.call:
        pass


async def test_whose_name_another_took_elsewhere_is_out(
    db: Database, start: StartCoordinator, eventually: Any
) -> None:
    """A process that was frozen, say; woken up, it must not speak for the one that follows it."""
    first, second = await start(), await start()
    async with (
        grpc.aio.insecure_channel(first.address) as here,
        grpc.aio.insecure_channel(second.address) as there,
    ):
        old, new = fleet_pb2_grpc.FleetStub(here), fleet_pb2_grpc.FleetStub(there)
        frozen = {"worker_id": "w1", "session": (await old.RegisterWorker(registration())).session}
        stream = Stream(old, **frozen)
        await stream.say(free_slots=5)
        await eventually(lambda: db.fetch("SELECT FROM shiftboss.sessions WHERE coordinator IS NOT NULL"))
        await db.execute("UPDATE public.workers SET last_heartbeat = now() - interval '1 hour'")
        follower = {"worker_id": "w1", "session": (await new.RegisterWorker(registration())).session}
        error = await refusal(old.UnregisterWorker(pb.UnregisterWorkerRequest(**frozen)))
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        error = await refusal(_read(stream))
        assert error.code() is grpc.StatusCode.ABORTED
        error = await refusal(old.Heartbeat(pb.HeartbeatRequest(**frozen)))
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
        await new.Heartbeat(pb.HeartbeatRequest(**follower))


async def test_a_beat_for_a_name_that_another_took_is_refused(db: Database, start: StartCoordinator) -> None:
    first, second = await start(), await start()
    async with (
        grpc.aio.insecure_channel(first.address) as here,
        grpc.aio.insecure_channel(second.address) as there,
    ):
        old, new = fleet_pb2_grpc.FleetStub(here), fleet_pb2_grpc.FleetStub(there)
        frozen = {"worker_id": "w1", "session": (await old.RegisterWorker(registration())).session}
        await old.Heartbeat(pb.HeartbeatRequest(**frozen))
        await new.RegisterWorker(registration())
        error = await refusal(old.Heartbeat(pb.HeartbeatRequest(**frozen)))
        assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_coordinators_of_two_hosts_have_two_names(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = Coordinator(db, CoordinatorSettings(host="127.0.0.1"), None)
    names = set()
    for host in ("one", "two"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        names.add(coordinator.name)
    assert names == {"one/127.0.0.1:50051", "two/127.0.0.1:50051"}


async def test_sessions_of_workers_that_went_without_a_word_are_forgotten(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(db, CoordinatorSettings())
    secret, _ = await registry.enroll(Member(id="gone"), "")
    await registry.session("gone", secret)
    registry.tidy()
    assert registry.get("gone") is not None
    monkeypatch.setattr("shiftboss.extensions.grpc.registry.FORGET_AFTER", -1.0)
    registry.tidy()
    assert registry.get("gone") is None
    assert await registry.session("gone", secret)  # back after all


async def test_a_coordinator_whose_dispatcher_breaks_does_not_look_alive(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr("shiftboss.extensions.grpc.dispatch.Dispatcher._pass", broken)
    with pytest.raises(RuntimeError, match="nobody thought"):
        async with asyncio.timeout(10):
            await coordinator.wait()


@pytest.mark.parametrize(
    ("text", "good"),
    [(r'{"path": "C:\\u0000"}', True), (r'"\u0000"', False), (r'"\\\u0000"', False), (r'"a\\\\u0000"', True)],
)
async def test_only_a_true_nul_is_refused_in_a_result(
    coordinator: Coordinator, db: Database, connect: Any, text: str, good: bool
) -> None:
    source = await connect(coordinator)
    await enqueue(db, 1)
    (task,) = await claim(source, 1)
    await source.report([Report(task, Complete(text.encode()), 0.1)])
    (row,) = await db.fetch("SELECT status FROM public.tasks")
    assert row["status"] == ("Complete" if good else "Failed")


@pytest.mark.parametrize(("family", "call"), [(Installation, "own"), (FleetStore, "detach")])
async def test_a_coordinator_that_starts_waits_for_the_database(
    start: StartCoordinator, monkeypatch: pytest.MonkeyPatch, family: type, call: str
) -> None:
    away(monkeypatch, family, call)
    coordinator = await start()
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        assert (await fleet_pb2_grpc.FleetStub(channel).RegisterWorker(registration())).session
