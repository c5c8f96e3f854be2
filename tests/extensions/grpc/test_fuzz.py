"""The service answers any input with a status and continues to serve.

SHIFTBOSS_TEST_FUZZ=100 sends 100 times as many messages. Without it, the same ones are sent every time.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.extensions.grpc.server import Coordinator

from .conftest import registration

ROUNDS = int(os.environ.get("SHIFTBOSS_TEST_FUZZ", "1"))
SERVICE = pb.DESCRIPTOR.services_by_name["Fleet"]
UNARY = [method for method in SERVICE.methods if method.name != "AssignTask"]
BROKEN = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}
# the client's own words when the server answers before it has sent everything
CUT_SHORT = "Internal error from Core"
TEXT = st.text(max_size=12) | st.sampled_from(["w1", "", "\x00", "a" * 300, "{}", "\\u0000"])
NUMBERS = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
}


def values(field: Any, session: str, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return messages(field.message_type, session, depth - 1)
    if field.type == field.TYPE_STRING:
        return st.just(session) | TEXT if field.name == "session" else TEXT
    if field.type == field.TYPE_BOOL:
        return st.booleans()
    if field.type == field.TYPE_DOUBLE:
        return st.floats()
    kinds = {field.TYPE_INT32: "int32", field.TYPE_INT64: "int64", field.TYPE_UINT32: "uint32"}
    return NUMBERS[kinds.get(field.type, "uint64")]


def messages(kind: Any, session: str, depth: int = 3) -> st.SearchStrategy[Any]:
    """Any message of this kind, well formed but senseless."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in kind.fields:
        if field.message_type is None or depth > 0:
            one = values(field, session, depth)
            fields[field.name] = st.lists(one, max_size=3) if field.is_repeated else st.none() | one
    return st.fixed_dictionaries(fields).map(lambda given: build(kind, given))


def build(kind: Any, given: dict[str, Any]) -> Any:
    return getattr(pb, kind.name)(**{name: value for name, value in given.items() if value is not None})


async def throw(stub: Any, method: str, message: Any) -> grpc.StatusCode:
    try:
        await getattr(stub, method)(message, timeout=10)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def throw_stream(stub: Any, thrown: list[Any]) -> grpc.StatusCode:
    call = stub.AssignTask(iter_async(thrown), timeout=10)
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return grpc.StatusCode.OK if CUT_SHORT in (error.details() or "") else error.code()
    return grpc.StatusCode.OK


async def iter_async(thrown: list[Any]) -> Any:
    for message in thrown:
        yield message


@pytest.mark.timeout(120 * ROUNDS)
async def test_senseless_messages(coordinator: Coordinator) -> None:
    loop = asyncio.get_running_loop()
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        stub = fleet_pb2_grpc.FleetStub(channel)
        session = (await stub.RegisterWorker(registration())).session
        unary = st.sampled_from(UNARY).flatmap(
            lambda method: st.tuples(st.just(method.name), messages(method.input_type, session))
        )
        stream = st.lists(messages(pb.AssignTaskRequest.DESCRIPTOR, session), max_size=3)

        @settings(
            max_examples=120 * ROUNDS,
            deadline=None,
            derandomize=ROUNDS == 1,
            suppress_health_check=[HealthCheck.too_slow],
            database=None,
        )
        @given(unary | stream)
        def attack(thrown: Any) -> None:
            call = throw_stream(stub, thrown) if isinstance(thrown, list) else throw(stub, *thrown)
            code = asyncio.run_coroutine_threadsafe(call, loop).result(30)
            assert code not in BROKEN, thrown

        await asyncio.to_thread(attack)
        assert (await stub.RegisterWorker(registration("after"))).session


@pytest.mark.timeout(120 * ROUNDS)
async def test_random_bytes(coordinator: Coordinator) -> None:
    loop = asyncio.get_running_loop()
    async with grpc.aio.insecure_channel(coordinator.address) as channel:

        @settings(
            max_examples=80 * ROUNDS,
            deadline=None,
            derandomize=ROUNDS == 1,
            suppress_health_check=[HealthCheck.too_slow],
            database=None,
        )
        @given(st.sampled_from(UNARY), st.binary(max_size=200))
        def attack(method: Any, raw: bytes) -> None:
            async def send() -> None:
                call = channel.unary_unary(f"/{SERVICE.full_name}/{method.name}")
                try:
                    await call(raw, timeout=10)
                except grpc.aio.AioRpcError as error:
                    assert error.code() not in BROKEN  # noqa: PT017

            asyncio.run_coroutine_threadsafe(send(), loop).result(30)

        await asyncio.to_thread(attack)
        stub = fleet_pb2_grpc.FleetStub(channel)
        assert (await stub.RegisterWorker(registration("after"))).session
