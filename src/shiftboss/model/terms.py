"""The terms of a task type that workers publish beside its JSON Schema.

A client that enqueues by name (the command line, HTTP, gRPC) has no decorator to read them from.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from shiftboss.model.task import NewTask

#: The keyword of the published schema that has them. JSON Schema ignores unknown keywords.
TERMS_KEY = "x-shiftboss"
_SPANS = ("backoff", "backoff_max", "timeout")
PUBLISHED_TERMS = ("queue", "priority", "max_attempts", "backoff_factor", "origin", "requires", *_SPANS)


def to_json(handler: object) -> dict[str, Any]:
    """Return the terms that the handler declares; time spans are seconds."""
    declared = {name: getattr(handler, name) for name in PUBLISHED_TERMS}
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in declared.items()
        if value is not None
    }


def fill_in(task: NewTask, schema: Mapping[str, Any]) -> None:
    """Set the terms that the task leaves open to those that its type declares."""
    for name, value in schema.get(TERMS_KEY, {}).items():
        if name in PUBLISHED_TERMS and getattr(task, name) is None:
            setattr(task, name, timedelta(seconds=value) if name in _SPANS else value)
