"""OpenTelemetry: one trace through enqueue, wait, claim, run, steps, child tasks and calls of models.

Install the extra `otel` and set the usual variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`. A tracer provider
of the application is used as it is. Otherwise OpenTelemetry is not imported, and each of these functions
returns at once. The trace context is stored in `tasks.metadata`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from shiftboss.log import get_logger
from shiftboss.model.task import Claimed, Fail, NewTask, Outcome, Postpone

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

log = get_logger(__name__)

NAME = "shiftboss"
SYSTEM = {"messaging.system": NAME}
#: Any of these variables enables traces.
ASKED = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
HEADERS = ("traceparent", "tracestate")
_nothing: AbstractContextManager[None] = nullcontext()
_tracer: Tracer | None = None
_looked = False


def tracer() -> Tracer | None:
    """Return the tracer, or None if traces are not enabled."""
    global _looked, _tracer
    if _tracer is not None:
        return _tracer
    if not _looked:
        _looked = True
        if _asked() and not _set_up():
            return None
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    _tracer = trace.get_tracer(NAME)
    return _tracer


def _asked() -> bool:
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if disabled or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(os.environ.get(name) for name in ASKED)


def _set_up() -> bool:
    """Export spans as the environment specifies, unless the application has its own provider."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        log.warning("traces need packages: pip install 'shiftboss[otel]'", missing=error.name)
        return False
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": NAME}
        provider = TracerProvider(resource=Resource.create(named))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    return True


def flush() -> None:
    """Send all ended spans, because this process may be killed."""
    if _tracer is not None:
        from opentelemetry import trace

        force = getattr(trace.get_tracer_provider(), "force_flush", None)
        if force is not None:
            force(5000)


def carrier() -> dict[str, str] | None:
    """Return the context of the current span as headers, or None without a span."""
    if tracer() is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers or None


def continued(headers: Mapping[str, Any] | None) -> None:
    """Continue the span of these headers from `carrier` in the current context."""
    if headers and tracer() is not None:
        from opentelemetry import context

        context.attach(_extracted(headers))


def _extracted(headers: Mapping[str, Any] | None) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found = headers or {}
    given = {name: found[name] for name in HEADERS if isinstance(found.get(name), str)}
    return TraceContextTextMapPropagator().extract(given)


@contextmanager
def _sending(tasks: Sequence[NewTask], current: Tracer) -> Iterator[Sequence[NewTask]]:
    from opentelemetry.trace import SpanKind

    queues = {task.queue or "default" for task in tasks}
    queue = queues.pop() if len(queues) == 1 else "(several)"
    attributes: dict[str, Any] = SYSTEM | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": queue,
    }
    if len(tasks) == 1:
        attributes["shiftboss.task_type"] = tasks[0].task_type
        if tasks[0].id is not None:
            attributes["messaging.message.id"] = str(tasks[0].id)
    else:
        attributes["messaging.batch.message_count"] = len(tasks)
    with current.start_as_current_span(f"send {queue}", kind=SpanKind.PRODUCER, attributes=attributes):
        headers = carrier() or {}
        yield [replace(task, metadata=headers | (task.metadata or {})) for task in tasks]


def sending(tasks: Sequence[NewTask]) -> AbstractContextManager[Sequence[NewTask]]:
    """Open a span around an enqueue: `with sending(tasks) as tasks` yields tasks that carry its context."""
    current = tracer()
    return nullcontext(tasks) if current is None or not tasks else _sending(tasks, current)


def begin(task: Claimed) -> Span | None:
    """Start the span of an attempt in the current context, after spans for its wait and claim."""
    current = tracer()
    if current is None:
        return None
    from opentelemetry import context, trace
    from opentelemetry.trace import SpanKind

    parent = _extracted(task.metadata)
    about: dict[str, Any] = SYSTEM | {
        "messaging.destination.name": task.queue,
        "messaging.message.id": str(task.id),
        "shiftboss.task_type": task.task_type,
        "shiftboss.attempt": task.attempt,
    }
    wait = current.start_span("wait", parent, attributes=about, start_time=_nanos(task.ready_at))
    wait.end(_nanos(max(task.started_at, task.ready_at)))
    receive = {"messaging.operation.name": "receive", "messaging.operation.type": "receive"}
    claim = current.start_span(
        f"receive {task.queue}",
        parent,
        SpanKind.CONSUMER,
        about | receive,
        start_time=min(_nanos(task.started_at), time.time_ns()),
    )
    claim.end()
    process = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    span = current.start_span(f"process {task.queue}", parent, SpanKind.CONSUMER, about | process)
    context.attach(trace.set_span_in_context(span))
    return span


def end(span: Span | None, outcome: Outcome) -> None:
    """End the span of an attempt with its outcome."""
    if span is None:
        return
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("shiftboss.outcome", type(outcome).__name__.lower())
    if isinstance(outcome, Fail):
        first = outcome.error.partition("\n")[0]
        span.set_status(Status(StatusCode.ERROR, first))
        kind = first.partition(":")[0] if outcome.kind == "failed" else outcome.kind
        span.set_attribute("error.type", kind)
    if isinstance(outcome, Postpone):
        span.set_attribute("shiftboss.reason", outcome.reason)
    span.end()


def step(name: str) -> AbstractContextManager[Any]:
    """Open a span around a step."""
    current = tracer()
    if current is None:
        return _nothing
    return current.start_as_current_span(f"step {name}", attributes={"shiftboss.step": name})


def _nanos(at: datetime) -> int:
    return int(at.timestamp() * 1e9)
