"""KEDA's external scaler, which reports the amount of work so that Kubernetes can scale workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import grpc
import orjson

from shiftboss.db import Database
from shiftboss.extensions.grpc.proto import externalscaler_pb2 as pb
from shiftboss.extensions.grpc.proto import externalscaler_pb2_grpc
from shiftboss.extensions.grpc.refusals import Context
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.model.errors import ShiftbossError

METRIC = "shiftboss-work"
#: Metadata of a trigger that KEDA adds to the scaler's own parameters.
OF_KEDA = {
    "scalerAddress",
    "tlsCertFile",
    "caCert",
    "tlsClientCert",
    "tlsClientKey",
    "unsafeSsl",
    "enableTLS",
}
OURS = {"queues", "requires", "minAgeSeconds", "tasksPerWorker", "countRunning"}


@dataclass(frozen=True)
class Trigger:
    """The parameters of one trigger."""

    queues: list[str] | None
    requires: dict[str, Any] | None
    age: timedelta
    per_worker: float
    running: bool


class Scaler(externalscaler_pb2_grpc.ExternalScalerServicer):
    """Implements proto/keda/externalscaler.proto."""

    def __init__(self, db: Database, poll_seconds: float) -> None:
        self._db, self._poll_seconds = db, poll_seconds

    async def IsActive(self, request: pb.ScaledObjectRef, context: Context) -> pb.IsActiveResponse:
        return pb.IsActiveResponse(result=await self._work(request, context) > 0)

    async def StreamIsActive(
        self, request: pb.ScaledObjectRef, context: Context
    ) -> AsyncIterator[pb.IsActiveResponse]:
        """Send whether there is work now, and again whenever this changes."""
        told: bool | None = None
        while True:
            active = await self._work(request, context) > 0
            if active is not told:
                yield pb.IsActiveResponse(result=active)
            told = active
            await asyncio.sleep(self._poll_seconds)

    async def GetMetricSpec(self, request: pb.ScaledObjectRef, context: Context) -> pb.GetMetricSpecResponse:
        target = (await _parsed(request, context)).per_worker
        spec = pb.MetricSpec(metricName=METRIC, targetSize=max(round(target), 1), targetSizeFloat=target)
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(self, request: pb.GetMetricsRequest, context: Context) -> pb.GetMetricsResponse:
        work = await self._work(request.scaledObjectRef, context)
        value = pb.MetricValue(metricName=METRIC, metricValue=work, metricValueFloat=work)
        return pb.GetMetricsResponse(metricValues=[value])

    async def _work(self, request: pb.ScaledObjectRef, context: Context) -> int:
        wanted = await _parsed(request, context)
        try:
            ready, running = await self._db.family(FleetStore).work(
                wanted.queues, wanted.requires, wanted.age
            )
        except ShiftbossError as error:
            # KEDA keeps the number of workers while its scaler is unavailable.
            await context.abort(grpc.StatusCode.UNAVAILABLE, error.message)
        return ready + running if wanted.running else ready


async def _parsed(request: pb.ScaledObjectRef, context: Context) -> Trigger:
    try:
        return parse(dict(request.scalerMetadata))
    except ValueError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        raise


def parse(metadata: Mapping[str, str]) -> Trigger:
    """Parse the metadata of a trigger. Raise ValueError for an invalid entry."""
    if unknown := metadata.keys() - OURS - OF_KEDA:
        raise ValueError(f"unknown parameters: {', '.join(sorted(unknown))}; use {', '.join(sorted(OURS))}")
    names = [name.strip() for name in metadata.get("queues", "").split(",") if name.strip()]
    return Trigger(
        queues=names or None,
        requires=_object(metadata.get("requires", "")),
        age=timedelta(seconds=_number(metadata, "minAgeSeconds", 0.0, 0.0, 366 * 86_400.0)),
        per_worker=_number(metadata, "tasksPerWorker", 10.0, 0.001, 1e9),
        running=_flag(metadata, "countRunning", True),
    )


def _object(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise ValueError(f'requires is not JSON: {error}; for example {{"gpu": true}}') from None
    if not isinstance(value, dict):
        raise ValueError('requires must be a JSON object, for example {"gpu": true}')
    return value


def _number(metadata: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = metadata.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, not {text!r}")
    return value


def _flag(metadata: Mapping[str, str], name: str, default: bool) -> bool:
    text = metadata.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise ValueError(f"{name} must be true or false, not {text!r}")
    return default if text == "" else text == "true"
