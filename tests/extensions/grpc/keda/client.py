"""A client generated from KEDA's protocol. It prints what a scaler at an address answers, as JSON.

It runs in a process of its own: the protocol's names are those of Shiftboss's own copy, and can be loaded once.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path

import grpc
from grpc_tools import protoc


def main(address: str, metadata: dict[str, str]) -> None:
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        made = [f"-I{here}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
        assert protoc.main(["protoc", *made, "externalscaler.proto"]) == 0
        sys.path.insert(0, folder)
        messages, services = (
            importlib.import_module(f"externalscaler_{kind}") for kind in ("pb2", "pb2_grpc")
        )
    with grpc.insecure_channel(address) as channel:
        keda = services.ExternalScalerStub(channel)
        scaled = messages.ScaledObjectRef(name="workers", namespace="default", scalerMetadata=metadata)
        [spec] = keda.GetMetricSpec(scaled).metricSpecs
        asked = messages.GetMetricsRequest(scaledObjectRef=scaled, metricName=spec.metricName)
        [metric] = keda.GetMetrics(asked).metricValues
        answers = {
            "active": keda.IsActive(scaled).result,
            "pushed": next(iter(keda.StreamIsActive(scaled))).result,
            "target": spec.targetSizeFloat,
            "value": metric.metricValueFloat,
            "specs": _code(lambda: next(iter(keda.StreamMetricSpec(scaled)))),
        }
    print(json.dumps(answers))


def _code(call: object) -> str:
    try:
        call()  # type: ignore[operator]
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
