"""Real coordinators on real sockets over a fresh database."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from shiftboss.coordinator.proto import fleet_pb2 as pb
from shiftboss.coordinator.proto import fleet_pb2_grpc
from shiftboss.coordinator.server import Coordinator
from shiftboss.db import Database
from shiftboss.model.settings import CoordinatorSettings

QUICK: dict[str, Any] = {"port": 0, "require_token": False, "accept_seconds": 0.5, "poll_seconds": 0.2}
StartCoordinator = Callable[..., Awaitable[Coordinator]]


@pytest.fixture
async def start(db: Database) -> AsyncIterator[StartCoordinator]:
    """Start coordinators; all are stopped at the end."""
    running: list[Coordinator] = []

    async def start(authenticator: Any = None, **settings: Any) -> Coordinator:
        coordinator = Coordinator(db, CoordinatorSettings(**(QUICK | settings)), authenticator)
        await coordinator.start()
        running.append(coordinator)
        return coordinator

    yield start
    for coordinator in running:
        await coordinator.stop()


@pytest.fixture
async def coordinator(start: StartCoordinator) -> Coordinator:
    return await start()


@pytest.fixture
async def stub(coordinator: Coordinator) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        yield fleet_pb2_grpc.FleetStub(channel)


def registration(worker_id: str = "w1", slots: int = 5, **fields: Any) -> pb.RegisterWorkerRequest:
    can = {"max_concurrent_tasks": slots} | fields.pop("capabilities", {})
    fields = {"protocol_version": 1} | fields
    return pb.RegisterWorkerRequest(worker_id=worker_id, capabilities=pb.Capabilities(**can), **fields)


class Stream:
    """An AssignTask stream driven by hand."""

    def __init__(self, stub: Any, worker_id: str, session: str) -> None:
        self.call = stub.AssignTask()
        self._who = {"worker_id": worker_id, "session": session}

    async def say(self, **fields: Any) -> None:
        await self.call.write(pb.AssignTaskRequest(**self._who, **fields))
        self._who = {}

    async def tasks(self, count: int) -> list[pb.Assignment]:
        """The next `count` assignments."""
        found: list[pb.Assignment] = []
        while len(found) < count:
            response = await self.call.read()
            assert response is not grpc.aio.EOF, await self.call.details()
            found += response.assignments
        return found


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    """The status that a call is refused with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
