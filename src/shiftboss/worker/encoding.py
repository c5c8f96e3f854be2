"""Results as JSON that PostgreSQL can store."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_type_hints

import orjson
from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from shiftboss.model.errors import ResultInvalid, UsageError

JSON = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def to_json(what: str, result: Any, most: int) -> bytes | None:
    """The result as JSON; None stays None. Raises UsageError if it cannot be stored."""
    if result is None:
        return None
    try:
        text = orjson.dumps(result, default=_plain, option=JSON)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the result of {what} is not JSON: {error}") from None
    if len(text) > most:
        raise UsageError(
            f"the result of {what} takes {len(text)} bytes, at most {most} can be kept",
            hint="store it elsewhere and return a reference",
        )
    if b"\\u0000" in text:
        raise UsageError(f"the result of {what} holds a NUL character, which PostgreSQL cannot store")
    return text


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def decode(what: str, value: Any, kind: Any) -> Any:
    """JSON as the type `kind`; as it is where there is none."""
    adapter = None if kind in (None, Any) else _adapter(kind)
    if adapter is None:
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ResultInvalid(
            f"what is recorded for {what} is not of the type that is asked for: {first['msg']}",
            hint="correct the type, or start again from there: shiftboss tasks retry ID --from STEP",
        ) from None


@lru_cache(1000)
def _adapter(kind: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(kind)
    except (PydanticUserError, PydanticSchemaGenerationError):  # not a type that data can be checked against
        return None


def schema_of(kind: Any) -> dict[str, Any] | None:
    """The JSON Schema of what `decode` takes for this type; None where any JSON will do."""
    adapter = None if kind in (None, Any) else _adapter(kind)
    try:
        return adapter.json_schema() if adapter else None
    except PydanticUserError:  # a type that checks data, but that no schema describes
        return None


def returns(function: Any) -> Any:
    """The type that a function promises to return; None where it does not say."""
    if not getattr(function, "__annotations__", None):
        return None  # also keeps lambdas, of which there may be very many, out of the cache
    return _hints(function)


@lru_cache(1000)
def _hints(function: Any) -> Any:
    try:
        return get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
