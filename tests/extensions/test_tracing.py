"""One trace through enqueue, wait, claim, run, steps, children and AI calls, as a real OTLP receiver gets it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from shiftboss.db import Database
from shiftboss.model.task import NewTask

ROOT = Path(__file__).resolve().parents[2]
Launch = Callable[..., subprocess.Popen[bytes]]
KINDS = SpanMessage.SpanKind


class Received:
    """A span as the receiver got it."""

    def __init__(self, span: SpanMessage, service: str) -> None:
        self.name, self.kind, self.service = span.name, span.kind, service
        self.id, self.parent, self.trace = span.span_id, span.parent_span_id, span.trace_id
        self.failed = span.status.code == 2
        self.seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        self.attributes = {
            one.key: one.value.int_value or one.value.string_value or one.value for one in span.attributes
        }


class Collector(ThreadingHTTPServer):
    """An OTLP receiver over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.spans: list[Received] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]


class _Take(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {one.key: one.value.string_value for one in resource.resource.attributes}[
                "service.name"
            ]
            for scope in resource.scope_spans:
                self.server.spans += [Received(span, service) for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def launch(collector: Collector, database_url: str, tmp_path: Path) -> Iterator[Launch]:
    """Start `shiftboss ...` with traces on and nothing else set up."""
    running: list[subprocess.Popen[bytes]] = []

    def start(
        *words: str, command: tuple[str, ...] = ("-m", "shiftboss"), **more: str
    ) -> subprocess.Popen[bytes]:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "SHIFTBOSS_DATABASE_URL": database_url,
            "SHIFTBOSS_DATA_DIR": str(tmp_path / "data"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        process = subprocess.Popen(
            [sys.executable, *command, *words], env=os.environ | env | more, cwd=tmp_path
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
    for process in running:
        process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


ENQUEUE = """
import asyncio
from tests.extensions.traced import app, failing, parent

async def main():
    async with app:
        await (await parent.enqueue()).result(timeout=120)
        await (await failing.enqueue()).wait(timeout=60)

asyncio.run(main())
"""


def whole(collector: Collector) -> Any:
    """The first span of the trace, once all three services have sent something of it."""
    for root in collector.named("send default"):
        task_type = str(root.attributes.get("shiftboss.task_type"))
        services = {span.service for span in collector.spans if span.trace == root.trace}
        if task_type.endswith("parent") and not root.parent and services == {"web", "local", "far"}:
            return root
    return None


@pytest.mark.timeout(240)
async def test_one_trace_across_processes_and_grpc(
    collector: Collector, launch: Launch, eventually: Any
) -> None:
    address = f"127.0.0.1:{(port := free_port())}"
    launch("coordinator", "--no-token", "--port", str(port))
    target = "tests.extensions.traced:app"
    launch("worker", target, "--queue", "default", OTEL_SERVICE_NAME="local")
    launch("worker", target, "--queue", "remote", "--coordinator", address, OTEL_SERVICE_NAME="far")
    caller = launch(command=("-c", ENQUEUE), OTEL_SERVICE_NAME="web")
    await eventually(lambda: caller.poll() is not None, timeout=200)
    assert caller.returncode == 0
    await eventually(lambda: any(span.failed for span in collector.named("process default")), timeout=30)
    await eventually(lambda: whole(collector), timeout=30)
    root = whole(collector)
    spans = [span for span in collector.spans if span.trace == root.trace]
    by_id = {span.id: span for span in spans}
    parents = {(span.name, span.service, by_id[span.parent].name) for span in spans if span.parent}
    assert (root.service, root.kind, root.parent) == ("web", KINDS.SPAN_KIND_PRODUCER, b"")
    assert ("wait", "local", "send default") in parents
    assert ("receive default", "local", "send default") in parents
    assert ("process default", "local", "send default") in parents
    assert ("step think", "local", "process default") in parents
    assert ("send default", "local", "process default") in parents, "the child in a process of its own"
    assert ("step count", "local", "process default") in parents
    assert ("send remote", "local", "process default") in parents
    assert ("process remote", "far", "send remote") in parents
    [call] = [span for span in spans if span.name.startswith("embeddings ")]
    assert (call.kind, by_id[call.parent].name) == (KINDS.SPAN_KIND_CLIENT, "step think")
    assert call.attributes["gen_ai.operation.name"] == "embeddings"
    assert call.attributes["gen_ai.provider.name"] == "local"
    process = next(span for span in spans if span.name == "process remote")
    assert process.kind == KINDS.SPAN_KIND_CONSUMER
    assert process.attributes["messaging.system"] == "shiftboss"
    assert process.attributes["messaging.operation.type"] == "process"
    assert process.attributes["messaging.destination.name"] == "remote"
    assert all(span.seconds >= 0 for span in spans)
    [failed] = [span for span in collector.named("process default") if span.failed]
    assert failed.trace != root.trace
    assert failed.attributes["error.type"] == "ValueError"


OFF = """
import sys, timeit
from shiftboss import tracing
from shiftboss.worker import runtime
from shiftboss.model.task import NewTask
tasks = [NewTask(task_type="t")]

def spans():
    with tracing.sending(tasks): pass
    tracing.begin(None)
    with tracing.step("s"): pass
    tracing.end(None, None)

print(min(timeit.repeat(spans, number=10_000, repeat=5)) / 10_000)
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""


@pytest.mark.serial
def test_off_it_costs_next_to_nothing_and_imports_nothing() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", OFF], env=env, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 20e-6, "seconds per task"


async def test_an_application_s_own_provider_is_used(db: Database, database_url: str, tmp_path: Path) -> None:
    script = """
import asyncio, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from shiftboss.db import Database
from shiftboss.model.task import NewTask

spans, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)

async def main():
    async with await Database.open(sys.argv[1]) as db:
        with trace.get_tracer("web").start_as_current_span("request"):
            await db.tasks.enqueue([NewTask(task_type="a"), NewTask(task_type="b", metadata={"own": 1})])

asyncio.run(main())
send, request = spans.get_finished_spans()
assert send.parent.span_id == request.context.span_id
assert send.attributes["messaging.batch.message_count"] == 2
print(format(request.context.trace_id, "032x"))
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, database_url], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stderr, time.monotonic() - began)
    rows = await db.fetch("SELECT metadata FROM tasks ORDER BY task_type")
    assert all(row["metadata"]["traceparent"].split("-")[1] == done.stdout.strip() for row in rows)
    assert rows[1]["metadata"]["own"] == 1
    assert NewTask(task_type="x").metadata is None
