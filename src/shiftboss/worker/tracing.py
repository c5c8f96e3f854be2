"""OpenTelemetry, as a listener on the worker's hooks: one span per attempt. Needs the extra `otel`."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shiftboss.model.task import Fail, Postpone
from shiftboss.worker.hooks import Ended, Event, Hooks, Started

_propagator = TraceContextTextMapPropagator()


def carrier() -> dict[str, str]:
    """The caller's trace context, for `NewTask.metadata`: the attempt's span will be its child."""
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    return headers


class Tracing:
    """Spans of the attempts that run now."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("shiftboss", tracer_provider=provider)
        self._open: dict[int, Span] = {}

    def hear(self, hooks: Hooks) -> None:
        hooks.listen(self._on_event)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Started):
            task = event.task
            self._open[task.lease] = self._tracer.start_span(
                task.task_type,
                context=_propagator.extract(task.metadata or {}),
                kind=SpanKind.CONSUMER,
                attributes={
                    "messaging.system": "shiftboss",
                    "messaging.destination.name": task.queue,
                    "messaging.message.id": str(task.id),
                    "shiftboss.attempt": task.attempt,
                },
            )
        elif isinstance(event, Ended):
            self._end(event)

    def _end(self, event: Ended) -> None:
        outcome = event.report.outcome
        span = self._open.pop(event.report.task.lease, None)
        if span is None:  # it was stopped before it began
            return
        span.set_attribute("shiftboss.outcome", type(outcome).__name__.lower())
        if isinstance(outcome, Fail):
            span.set_status(Status(StatusCode.ERROR, outcome.error.partition("\n")[0]))
        if isinstance(outcome, Postpone):
            span.set_attribute("shiftboss.reason", outcome.reason)
        span.end()
