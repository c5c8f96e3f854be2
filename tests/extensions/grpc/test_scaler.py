"""KEDA's side of the external scaler, over a real socket."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc.proto import externalscaler_pb2 as pb
from shiftboss.extensions.grpc.proto import externalscaler_pb2_grpc
from shiftboss.model.task import NewTask
from tests.extensions.grpc.conftest import StartCoordinator


@pytest.fixture
async def keda(start: StartCoordinator) -> AsyncIterator[Any]:
    coordinator = await start(scaler=True)
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        yield externalscaler_pb2_grpc.ExternalScalerStub(channel)


def trigger(**metadata: str) -> pb.ScaledObjectRef:
    given = {"scalerAddress": "shiftboss:50051"} | metadata
    return pb.ScaledObjectRef(name="workers", namespace="default", scalerMetadata=given)


async def value(keda: Any, **metadata: str) -> float:
    request = pb.GetMetricsRequest(scaledObjectRef=trigger(**metadata), metricName="shiftboss-work")
    [metric] = (await keda.GetMetrics(request)).metricValues
    assert metric.metricValue == metric.metricValueFloat
    return float(metric.metricValueFloat)


async def test_work_is_counted_by_queue_requirement_and_age(db: Database, keda: Any) -> None:
    later = timedelta(hours=1)
    await db.tasks.enqueue([NewTask(task_type="t", queue="mail") for _ in range(3)])
    await db.execute("SELECT FROM shiftboss.claim('w', 1)")
    await db.tasks.enqueue(
        [
            NewTask(task_type="t", queue="render", requires={"gpu": True}),
            NewTask(task_type="t", queue="mail", delay=later),
        ]
    )
    assert await value(keda) == 4
    assert await value(keda, queues="mail") == 3
    assert await value(keda, queues="mail", countRunning="false") == 2
    assert await value(keda, queues="mail, render") == 4
    assert await value(keda, requires='{"gpu": true}') == 1
    assert await value(keda, minAgeSeconds="60", countRunning="false") == 0
    await db.tasks.pause("queue", "render")
    assert await value(keda, queues="render") == 0


async def test_it_is_active_while_there_is_work(db: Database, keda: Any) -> None:
    assert not (await keda.IsActive(trigger(queues="mail"))).result
    told = keda.StreamIsActive(trigger(queues="mail")).__aiter__()
    assert not (await told.__anext__()).result
    [made] = await db.tasks.enqueue([NewTask(task_type="t", queue="mail")])
    assert (await told.__anext__()).result
    assert (await keda.IsActive(trigger(queues="mail"))).result
    await db.tasks.cancel([made.id])
    assert not (await told.__anext__()).result


async def test_the_target_is_the_triggers(keda: Any) -> None:
    [spec] = (await keda.GetMetricSpec(trigger(tasksPerWorker="2.5"))).metricSpecs
    assert (spec.metricName, spec.targetSizeFloat) == ("shiftboss-work", 2.5)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"queue": "mail"}, "unknown parameters: queue"),
        ({"requires": "gpu"}, "requires is not JSON"),
        ({"requires": "[]"}, "must be a JSON object"),
        ({"tasksPerWorker": "0"}, "a number from 0.001"),
        ({"minAgeSeconds": "nan"}, "a number from 0"),
        ({"countRunning": "yes"}, "true or false"),
    ],
)
async def test_a_wrong_trigger_is_told(keda: Any, metadata: dict[str, str], words: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=words) as refused:
        await keda.IsActive(trigger(**metadata))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_it_is_off_unless_it_is_turned_on(coordinator: Any) -> None:
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        stub = externalscaler_pb2_grpc.ExternalScalerStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.IsActive(trigger())
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_client_made_from_the_published_protocol_is_understood(
    db: Database, start: StartCoordinator
) -> None:
    coordinator = await start(scaler=True)
    await db.tasks.enqueue([NewTask(task_type="t", queue="mail") for _ in range(3)])
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).parent / "keda" / "client.py"), coordinator.address,
        json.dumps({"scalerAddress": "shiftboss:50051", "queues": "mail", "tasksPerWorker": "2"}),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, _ = await process.communicate()
    assert json.loads(told) == {
        "active": True,
        "pushed": True,
        "target": 2.0,
        "value": 3.0,
        "specs": "UNIMPLEMENTED",  # optional: KEDA then asks instead
    }
