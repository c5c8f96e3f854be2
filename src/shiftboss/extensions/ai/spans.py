"""Spans of OpenTelemetry for calls of AI models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from shiftboss.tracing import tracer


def called(
    operation: str,
    model: str,
    provider: str,
    seconds: float,
    attributes: Mapping[str, Any],
    error: str | None,
) -> None:
    """Record a finished call of an AI model, by the semantic conventions for generative AI."""
    current = tracer()
    if current is None:
        return
    from opentelemetry.trace import SpanKind, Status, StatusCode

    about = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        **{name: value for name, value in attributes.items() if value is not None},
    }
    start = time.time_ns() - int(seconds * 1e9)
    name = f"{operation} {model}"
    span = current.start_span(name, kind=SpanKind.CLIENT, attributes=about, start_time=start)
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
        span.set_attribute("error.type", error)
    span.end()
