"""Clients that know nothing of us: one by reflection only, one in another language; and the generated code."""

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

import grpc
import pytest
from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from shiftboss.coordinator.server import Coordinator
from shiftboss.db import Database
from shiftboss.model.task import NewTask

ROOT = Path(__file__).parents[2]
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
            pytest.skip(f"npm can not install here: {done.stderr[-200:]}")


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


def test_the_lock_file_names_no_host() -> None:
    lock = json.loads((NODE / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_the_generated_code_is_current() -> None:
    words = [sys.executable, str(ROOT / "script" / "proto.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout
