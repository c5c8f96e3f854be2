"""Every call of every service, from the descriptors, with every credential that must not let anybody in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import grpc
import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc import auth, proto
from shiftboss.extensions.grpc.auth import DatabaseTokens
from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.model.access import Role
from shiftboss.model.task import NewTask

from .conftest import StartCoordinator, Stream, registration

SERVICES = [
    service
    for module in iter_modules(proto.__path__)
    if module.name.endswith("_pb2")
    for service in import_module(f"{proto.__name__}.{module.name}").DESCRIPTOR.services_by_name.values()
]
METHODS = [
    (f"/{service.full_name}/{method.name}", method.client_streaming, method.name)
    for service in SERVICES
    for method in service.methods
]
#: Services without tokens, which are off unless a setting turns them on.
OFF = ("/externalscaler.ExternalScaler/",)
REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


@pytest.fixture
async def channel(db: Database, start: StartCoordinator) -> AsyncIterator[grpc.aio.Channel]:
    coordinator = await start(DatabaseTokens(db))
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        yield channel


async def _tokens(db: Database) -> dict[str, str | None]:
    found: dict[str, str | None] = {"none": None, "empty": "", "wrong": "sb_wrong", "long": "x" * 2000}
    found["expired"] = await db.tokens.create_token("expired", Role.WORKER, timedelta(seconds=-1))
    found["revoked"] = await db.tokens.create_token("revoked", Role.WORKER)
    await db.tokens.revoke_token("revoked")
    for role in Role:
        found[role.value] = await db.tokens.create_token(role.value, role)
    return found


async def _status(channel: grpc.aio.Channel, path: str, streams: bool, token: str | None) -> grpc.StatusCode:
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    try:
        if streams:
            await channel.stream_stream(path)(metadata=metadata).read()
        else:
            await channel.unary_unary(path)(b"", metadata=metadata, timeout=20)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_nobody_is_let_in_by_a_call(db: Database, channel: grpc.aio.Channel) -> None:
    assert len(METHODS) >= 12
    for name, token in (await _tokens(db)).items():
        for path, streams, method in METHODS:
            allowed = ("operator", "admin") if method == "EnqueueTask" else ("worker",)
            if name in allowed:
                continue
            code = await _status(channel, path, streams, token)
            refused = (grpc.StatusCode.UNIMPLEMENTED,) if path.startswith(OFF) else REFUSED
            assert code in refused, (name, path, code)
    assert (await db.fetch("SELECT count(*) AS n FROM public.workers"))[0]["n"] == 0
    assert (await db.fetch("SELECT count(*) AS n FROM public.tasks"))[0]["n"] == 0


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_an_open_stream_ends_with_its_token(
    db: Database, channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(auth, "REMEMBERED_SECONDS", 0.1)
    token = await db.tokens.create_token("w", Role.WORKER, timedelta(hours=1))
    stub, metadata = fleet_pb2_grpc.FleetStub(channel), (("authorization", f"Bearer {token}"),)
    answer = await stub.RegisterWorker(registration(), metadata=metadata)

    class Authorised:
        def AssignTask(self) -> Any:
            return stub.AssignTask(metadata=metadata)

    stream = Stream(Authorised(), "w1", answer.session)
    await stream.say(free_slots=5)
    await db.tasks.enqueue([NewTask(task_type="t")])
    await asyncio.wait_for(stream.tasks(1), 20)
    change = "revoked_at = shiftboss.now()" if how == "revoked" else "expires_at = shiftboss.now()"
    await db.execute(f"UPDATE shiftboss.access_tokens SET {change}")
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await asyncio.wait_for(stream.tasks(1), 20)
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    for path, streams, _ in METHODS:
        assert await _status(channel, path, streams, token) in REFUSED or path.startswith(OFF), path
