"""Tokens, TLS and mTLS, sizes, rates, and a client that stops reading."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc.auth import DatabaseTokens
from shiftboss.extensions.grpc.link import CoordinatorError, CoordinatorUnavailable
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.source import CoordinatorSource
from shiftboss.model.access import Role
from shiftboss.model.errors import ConfigError, ShiftbossError
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member

from .conftest import StartCoordinator, Stream, refusal, registration

Code = grpc.StatusCode


async def test_only_a_workers_token_opens_the_door(db: Database, start: StartCoordinator) -> None:
    coordinator = await start(DatabaseTokens(db))
    worker = await db.tokens.create_token("w", Role.WORKER)
    admin = await db.tokens.create_token("a", Role.ADMIN)
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        for bad in [(), (("authorization", "Bearer nope"),), (("authorization", f"Bearer {admin}"),)]:
            error = await refusal(stub.RegisterWorker(registration(), metadata=bad))
            assert error.code() is Code.UNAUTHENTICATED
            assert "shiftboss token create" in (error.details() or "")
            stream = stub.AssignTask(metadata=bad)
            assert (await refusal(stream.read())).code() is Code.UNAUTHENTICATED
        good = (("authorization", f"Bearer {worker}"),)
        assert (await stub.RegisterWorker(registration(), metadata=good)).session
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await health(b"") == b"\x08\x01"  # SERVING, without a token


async def test_a_source_shows_its_token(db: Database, start: StartCoordinator) -> None:
    coordinator = await start(DatabaseTokens(db))
    token = await db.tokens.create_token("w", Role.WORKER)
    source = CoordinatorSource([coordinator.address], CoordinatorSettings(token=token))
    await source.join(Member(id="w1"))
    await source.leave()
    stranger = CoordinatorSource([coordinator.address], CoordinatorSettings())
    with pytest.raises(CoordinatorError, match="token"):
        await stranger.join(Member(id="w2"))


async def test_mutual_tls(db: Database, start: StartCoordinator, certificates: Path) -> None:
    files = certificates
    coordinator = await start(
        tls_cert=files / "server.pem", tls_key=files / "server.key", tls_client_ca=files / "ca.pem"
    )

    async def register(worker_id: str, **settings: Any) -> None:
        source = CoordinatorSource([coordinator.address], CoordinatorSettings(**settings))
        source._member = Member(id=worker_id)
        try:
            await source._register()
        finally:
            await source._link.close()

    own = {"client_cert": files / "client.pem", "client_key": files / "client.key"}
    await register("good", ca=files / "ca.pem", **own)
    strange = {"client_cert": files / "stranger.pem", "client_key": files / "stranger.key"}
    bad: list[dict[str, Any]] = [{}, {"ca": files / "ca.pem"}, {"ca": files / "ca.pem"} | strange]
    for settings in [*bad, {"ca": files / "other.pem"} | own]:
        with pytest.raises(CoordinatorUnavailable):
            await register("bad", **settings)
    assert [row["id"] for row in await db.fetch("SELECT id FROM public.workers")] == ["good"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"host": "0.0.0.0"}, "must require tokens"),
        ({"tls_cert": Path("x")}, "must be set together"),
        ({"tls_client_ca": Path("x")}, "needs"),
    ],
)
def test_unsafe_settings_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Coordinator(Database("", None), CoordinatorSettings(**fields), None)  # type: ignore[arg-type]


async def test_a_port_in_use_is_a_clear_error(coordinator: Coordinator, db: Database) -> None:
    second = Coordinator(db, CoordinatorSettings(port=coordinator.port, require_token=False), None)
    with pytest.raises(ShiftbossError, match="cannot listen"):
        await second.start()


async def test_giant_and_malformed_messages_end_in_a_status(
    db: Database, start: StartCoordinator, eventually: Any
) -> None:
    coordinator = await start(max_message_bytes=64 * 1024)
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        raw = channel.unary_unary("/shiftboss.v1.Fleet/RegisterWorker")
        giant = registration(metadata_json=" " * 100_000).SerializeToString()
        assert (await refusal(raw(giant))).code() is Code.RESOURCE_EXHAUSTED
        assert (await refusal(raw(b"\xff\xff\xff\xff"))).code() is Code.INVALID_ARGUMENT
        stream = channel.stream_stream("/shiftboss.v1.Fleet/AssignTask")()
        await stream.write(b"\xff\xff\xff\xff")
        assert (await refusal(stream.read())).code() is Code.INVALID_ARGUMENT
        missing = channel.unary_unary("/shiftboss.v1.Fleet/Nothing")
        assert (await refusal(missing(b""))).code() is Code.UNIMPLEMENTED
        assert (await fleet_pb2_grpc.FleetStub(channel).RegisterWorker(registration())).session


async def test_too_many_calls_are_slowed_down(start: StartCoordinator) -> None:
    coordinator = await start(calls_per_second=2)
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        session = (await stub.RegisterWorker(registration())).session
        beat = pb.HeartbeatRequest(worker_id="w1", session=session)

        async def storm() -> None:
            for _ in range(50):
                await stub.Heartbeat(beat)

        error = await refusal(storm())
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert "send larger batches" in (error.details() or "")


async def drain(stream: Stream, count: int) -> None:
    """Read and accept until `count` tasks have come."""
    seen: set[str] = set()
    while len(seen) < count:
        tasks = await stream.tasks(1)
        seen |= {task.task_id for task in tasks}
        await stream.say(free_slots=20 - len(seen), accepted=[task.lease for task in tasks])


async def test_a_stream_that_stops_reading_harms_nobody(
    db: Database, start: StartCoordinator, eventually: Any
) -> None:
    """Its flow-control window fills up; the others go on, and what it was given goes to them."""
    coordinator = await start()
    heavy = {"text": "x" * 1_000_000}
    made = await db.tasks.enqueue([NewTask(task_type="echo", params=heavy) for _ in range(20)])
    large = [("grpc.max_receive_message_length", -1)]
    async with (
        asyncio.timeout(60),
        grpc.aio.insecure_channel(coordinator.address) as one,
        grpc.aio.insecure_channel(coordinator.address, options=large) as two,
    ):
        deaf = fleet_pb2_grpc.FleetStub(one)
        session = (await deaf.RegisterWorker(registration("deaf", slots=20))).session
        await Stream(deaf, "deaf", session).say(free_slots=20)

        async def given_back() -> bool:
            attempts = await db.tasks.attempts(made[0].id)
            return [one["outcome"] for one in attempts] == ["released"]

        await eventually(given_back)
        stub = fleet_pb2_grpc.FleetStub(two)
        registered = await stub.RegisterWorker(registration("other", slots=20))
        other = Stream(stub, "other", registered.session)
        await other.say(free_slots=20)
        await drain(other, 20)
        rows = await db.fetch("SELECT DISTINCT attempts, worker_id FROM public.tasks")
        assert rows == [{"attempts": 0, "worker_id": "other"}]
        await coordinator.stop()


async def test_after_a_lapse_one_task_at_a_time(
    db: Database, start: StartCoordinator, eventually: Any
) -> None:
    """A worker that accepts nothing cannot hold up the queue by asking for more, again and again."""
    coordinator = await start()
    made = await db.tasks.enqueue([NewTask(task_type="echo") for _ in range(6)])
    async with asyncio.timeout(30), grpc.aio.insecure_channel(coordinator.address) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        stream = Stream(stub, "slow", (await stub.RegisterWorker(registration("slow"))).session)
        await stream.say(free_slots=5)
        assert len(await stream.tasks(5)) == 5
        while not (await stream.call.read()).withdrawn:
            pass

        async def told_why() -> bool:
            return any("lapse" in line.detail for line in await db.tasks.why(made[0].id))

        await eventually(told_why)
        await stream.say(free_slots=5)
        (task,) = await stream.tasks(1)
        await stream.say(free_slots=5, accepted=[task.lease])
        assert len(await stream.tasks(4)) == 4
