"""Clients that use only the protocol: by reflection, in another language, and the generated code."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import pytest
from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from shiftboss.db import Database
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.model.task import NewTask
from tests.extensions.grpc.conftest import StartCoordinator

ROOT = Path(__file__).parents[3]
NODE = ROOT / "examples" / "node-worker"


class Reflected:
    """Calls by name with JSON, from what the server tells about itself: what grpcurl does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        self._pool = DescriptorPool()

    async def _ask(self, **question: str) -> Any:
        call = self._stub.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(**question))
        answer = await call.read()
        await call.done_writing()
        return answer

    async def services(self) -> list[str]:
        answer = await self._ask(list_services="")
        return [service.name for service in answer.list_services_response.service]

    async def load(self, service: str) -> None:
        answer = await self._ask(file_containing_symbol=service)
        for raw in answer.file_descriptor_response.file_descriptor_proto:
            self._pool.Add(descriptor_pb2.FileDescriptorProto.FromString(raw))

    async def call(self, service: str, method: str, request: dict[str, Any]) -> dict[str, Any]:
        found = self._pool.FindServiceByName(service).FindMethodByName(method)
        kinds = [message_factory.GetMessageClass(kind) for kind in (found.input_type, found.output_type)]
        invoke = self._channel.unary_unary(
            f"/{service}/{method}", lambda message: message.SerializeToString(), kinds[1].FromString
        )
        answer = await invoke(json_format.ParseDict(request, kinds[0]()))
        return dict(json_format.MessageToDict(answer, preserving_proto_field_name=True))


async def test_a_client_that_uses_reflection_only(coordinator: Coordinator) -> None:
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        client = Reflected(channel)
        assert "shiftboss.v1.Fleet" in await client.services()
        await client.load("shiftboss.v1.Fleet")
        request = {
            "worker_id": "worker-ai-001",
            "capabilities": {"task_types": ["sentiment_analysis"], "max_concurrent_tasks": 5},
            "protocol_version": 1,
        }
        answer = await client.call("shiftboss.v1.Fleet", "RegisterWorker", request)
        assert answer["session"]
        health = await client.call("shiftboss.v1.Fleet", "GetWorkerHealth", {})
        assert [worker["worker_id"] for worker in health["workers"]] == ["worker-ai-001"]
        assert health["workers"][0]["status"] == "healthy"


@pytest.fixture(scope="module")
def node_modules() -> None:
    if shutil.which("npm") is None:
        pytest.skip("there is no npm here")
    if not (NODE / "node_modules").exists():
        words = ["npm", "ci", "--no-audit", "--no-fund", "--silent"]
        done = subprocess.run(words, cwd=NODE, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot install here: {done.stderr[-200:]}")


@pytest.mark.usefixtures("node_modules")
async def test_a_worker_in_another_language(coordinator: Coordinator, db: Database, eventually: Any) -> None:
    process = subprocess.Popen(["node", "worker.js", coordinator.address, "node-1"], cwd=NODE)
    try:
        tasks = [NewTask(task_type="slugify", params={"text": f"Hello, World {n}"}) for n in range(20)]
        ids = [made.id for made in await db.tasks.enqueue(tasks)]
        [bad] = await db.tasks.enqueue([NewTask(task_type="explode", max_attempts=1)])

        async def ended() -> bool:
            rows = await db.fetch(
                "SELECT count(*) AS n FROM public.tasks WHERE status IN ('Complete', 'Failed')"
            )
            return bool(rows[0]["n"] == 21)

        await eventually(ended, timeout=40)
        row = await db.tasks.get(ids[7])
        assert row
        assert (row["status"], row["result_data"], row["worker_id"]) == (
            "Complete",
            "hello-world-7",
            "node-1",
        )
        failed = await db.tasks.get(bad.id)
        assert failed
        assert "as asked for" in failed["error_message"]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 20) == 0  # the coordinator is in this process
        worker = await db.workers.get("node-1")
        assert worker
        assert worker["status"] == "inactive"
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("node_modules")
async def test_a_node_worker_honours_cancel_lost_and_drain_over_tls(
    start: StartCoordinator, db: Database, eventually: Any, certificates: Path
) -> None:
    files = certificates
    coordinator = await start(
        tls_cert=files / "server.pem",
        tls_key=files / "server.key",
        tls_client_ca=files / "ca.pem",
        heartbeat_seconds=0.5,
    )
    tls = {"CA": "ca.pem", "CLIENT_CERT": "client.pem", "CLIENT_KEY": "client.key"}
    env = os.environ | {f"SHIFTBOSS_COORDINATOR_{name}": str(files / file) for name, file in tls.items()}
    process = subprocess.Popen(["node", "worker.js", coordinator.address, "node-1"], cwd=NODE, env=env)
    try:
        tasks = [NewTask(task_type="wait", params={"seconds": 600}, max_attempts=1) for _ in range(2)]
        cancelled, lost = [made.id for made in await db.tasks.enqueue(tasks)]

        async def status(id: UUID, wanted: str) -> bool:
            row = await db.tasks.get(id)
            return row is not None and row["status"] == wanted

        for id in (cancelled, lost):
            await eventually(lambda one=id: status(one, "In Progress"), timeout=60)
        await db.tasks.cancel([cancelled])
        await eventually(lambda: status(cancelled, "Cancelled"), timeout=30)
        # Somebody ends the task behind the worker's back: its lease is gone, and it must let go.
        await db.execute("UPDATE public.tasks SET status = 'Cancelled' WHERE id = %s", [lost])
        await db.workers.set_flags("node-1", draining=True)
        assert await asyncio.to_thread(process.wait, 60) == 0
        worker = await db.workers.get("node-1")
        assert worker is not None
        assert worker["status"] == "inactive"
    finally:
        process.kill()
        process.wait()


def test_the_lock_file_names_no_host() -> None:
    lock = json.loads((NODE / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_the_generated_code_is_current() -> None:
    words = [sys.executable, str(ROOT / "script" / "proto.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout
