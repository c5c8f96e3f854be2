"""Real coordinators on real sockets over a fresh database."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings

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


def openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates of it for a server and a client; another authority that nobody trusts."""
    folder = tmp_path_factory.mktemp("tls")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    for authority in ("ca", "other"):
        name = ["-subj", f"/CN={authority}", "-keyout", folder / f"{authority}.key"]
        openssl("req", "-x509", *key, *name, "-out", folder / f"{authority}.pem")
    for owner, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        request = folder / f"{owner}.csr"
        (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        openssl("req", *key, "-subj", f"/CN={owner}", "-keyout", folder / f"{owner}.key", "-out", request)
        signer = [
            "-CA",
            folder / f"{authority}.pem",
            "-CAkey",
            folder / f"{authority}.key",
            "-CAcreateserial",
        ]
        made = ["-extfile", folder / "ext", "-days", "2", "-out", folder / f"{owner}.pem"]
        openssl("x509", "-req", "-in", request, *signer, *made)
    return folder


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

    async def rest(self) -> None:
        """Read to the end. A registration may still cause a request for a heartbeat."""
        while await self.call.read() is not grpc.aio.EOF:
            pass

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
