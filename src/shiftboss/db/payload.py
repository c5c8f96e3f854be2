"""Encodes tasks as JSON, and rejects values that JSON or PostgreSQL cannot store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import orjson
from psycopg.types.json import Jsonb

from shiftboss.model import codec
from shiftboss.model.errors import UsageError
from shiftboss.model.task import NewTask

__all__ = ["as_jsonb", "dumps", "json_fields"]


def json_fields(task: NewTask) -> dict[str, orjson.Fragment]:
    """Encode params and metadata as JSON text. Raises UsageError. The database limits their size."""
    given = {"params": task.params, "metadata": task.metadata}
    texts = {n: _text(task.task_type, n, value) for n, value in given.items() if value is not None}
    if "params" in texts:
        texts["params"] = codec.current().json(texts["params"])
    return {name: orjson.Fragment(text) for name, text in texts.items()}


def as_jsonb(value: dict[str, Any] | orjson.Fragment) -> Jsonb:
    """Return a query parameter of type jsonb."""
    return Jsonb(value, dumps=dumps)


def _text(task_type: str, name: str, value: dict[str, Any]) -> bytes:
    try:
        text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} of {task_type} are not JSON: {error}") from None
    # orjson encodes NaN and infinities as null.
    if b"null" in text and (where := _not_a_number(value, name)) is not None:
        raise UsageError(
            f"{where} of {task_type} is not a finite number: JSON has no NaN and no infinity",
            hint="omit the value, or pass None",
        )
    return text


def _not_a_number(value: Any, path: str) -> str | None:
    """Return the path of a NaN or infinity in a JSON value, or None."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        inner = ((f"{path}.{key}", part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        inner = ((f"{path}[{n}]", part) for n, part in enumerate(value))
    return next((found for where, part in inner if (found := _not_a_number(part, where))), None)


def dumps(value: Any) -> bytes:
    """Encode a value as JSON that PostgreSQL can store."""
    text = orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    if b"\\u0000" in text:
        raise UsageError("PostgreSQL cannot store a NUL character", hint="remove \\x00 from the task's text")
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} seconds"
    raise TypeError(f"{type(value).__name__} is not JSON")
